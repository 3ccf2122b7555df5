"""How an object store is reached: the section ``[storage]``, for Arrow here and for Hadoop in `hadoop.py`.

Both use the same settings. None of them is a secret: secrets are only named (`sources/access/security.py`), and read
where they are used. So every process of a session can find the settings in its environment, in the variable
``LOGTWIN_STORAGE``. Settings that are not given are left to the ecosystem: AWS's own variables, profile and role of the
instance, Azure's and Google's default credentials.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

import pyarrow.fs as pafs
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, ValidationInfo, field_validator, model_validator

from sources.access.security import Secret, place_of
from sources.errors import ConfigurationError

S3: Final = ("s3", "s3a")
AZURE: Final = ("abfs", "abfss")
GOOGLE: Final = ("gs",)
VARIABLE: Final = "LOGTWIN_STORAGE"
_SECRETS: Final = ("access_key", "secret_key", "session_token", "account_key")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_URL_FORM: Final = "http://host:port or https://host:port"
_ANY_REGION: Final = "us-east-1"
"""The region for stores other than Amazon's: it is used for signatures, but they have no regions."""
_ATTEMPTS: Final = 4
_AZURE_HOST: Final = ".dfs.core.windows.net"


class Storage(BaseModel):
    """``[storage]``: where the object store of the warehouse answers, and who we are to it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str | None = Field(
        None,
        description="S3: http(s)://host:port of a store that is not Amazon's; by default AWS_ENDPOINT_URL or Amazon's; "
        "Azure: of an emulator of its Blob Storage",
    )
    region: str | None = Field(None, description="S3: by default AWS_REGION, or the bucket's own, which is asked for")
    path_style: bool | None = Field(
        None, description="S3: the bucket in the path and not in the host's name; by default where there is an endpoint"
    )
    access_key: Secret | None = Field(
        None,
        description="S3: env:NAME or file:PATH, read where the tasks run; by default AWS's own chain: environment, "
        "profile, role of the instance",
    )
    secret_key: Secret | None = Field(None, description="S3: env:NAME or file:PATH, as above")
    session_token: Secret | None = Field(
        None, description="S3: env:NAME or file:PATH, of keys that expire; files are read again when they have changed"
    )
    account_key: Secret | None = Field(
        None, description="Azure: env:NAME or file:PATH, the key of the storage account; by default Azure's own chain"
    )
    single_writer: bool = Field(
        False, description="S3: true says that one process at a time writes, for a store without conditional writes"
    )
    patience_s: PositiveFloat = Field(
        20.0, description="a request is tried for so long before its store is said to be away, and waited for"
    )

    @field_validator(*_SECRETS, mode="before")
    @classmethod
    def _place(cls, given: object, info: ValidationInfo) -> Secret | None:
        return None if given is None else place_of(given, str(info.field_name))

    @field_validator("endpoint")
    @classmethod
    def _url(cls, given: str | None) -> str | None:
        if given is None:
            return None
        if "@" in given:
            raise ConfigurationError(
                "endpoint has credentials in it",
                expected=_URL_FORM,
                hint="Name them with access_key and secret_key. They are exposed now: replace them.",
            )
        if not _is_url(given):
            raise ValueError(_URL_FORM)
        return given.rstrip("/")

    @model_validator(mode="after")
    def _together(self) -> Storage:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key together")
        if self.session_token is not None and self.access_key is None:
            raise ValueError("session_token beside the access_key and secret_key that it belongs to")
        return self

    @property
    def url(self) -> str | None:
        """S3's endpoint; None for Amazon's own. Raises ConfigurationError if the environment's is not a URL."""
        given = self.endpoint or _first_of(_ENDPOINTS)
        if given is not None and not _is_url(given):
            raise ConfigurationError(f"{' or '.join(_ENDPOINTS)} is not usable", expected=_URL_FORM)
        return given and given.rstrip("/")

    @property
    def is_path_style(self) -> bool:
        return self.url is not None if self.path_style is None else self.path_style

    def region_of(self, bucket: str) -> str:
        """The region of `bucket`. Raises OSError if it is not configured, and Amazon cannot be asked."""
        return self.region or _first_of(_REGIONS) or (_ANY_REGION if self.url else _asked_region(bucket))

    def keys(self) -> Mapping[str, str]:
        """S3's keys as they are now, by the names of this section; none if AWS's own chain is to find them.

        Raises ConfigurationError.
        """
        named = {"access_key": self.access_key, "secret_key": self.secret_key, "session_token": self.session_token}
        return {name: secret.reveal() for name, secret in named.items() if secret is not None}

    def open(self, scheme: str, authority: str) -> tuple[pafs.FileSystem, str]:
        """Arrow's file system of S3 or Azure, and the name of the bucket or container in it.

        Raises OSError, ArrowException, ConfigurationError.
        """
        if scheme in S3:
            return _s3(self, self.region_of(authority), tuple(self.keys().items())), authority
        container, _, host = authority.partition("@")
        account_key = None if self.account_key is None else self.account_key.reveal()
        return _azure(host.removesuffix(_AZURE_HOST), account_key, self.endpoint), container

    def as_said(self) -> dict[str, object]:
        """The settings that were given, as in a configuration file: secrets by their places."""
        return {name: getattr(value, "reference", value) for name, value in self if value is not None}

    def as_text(self) -> str:
        """The settings as text for `VARIABLE`."""
        return json.dumps(self.as_said())


def storage() -> Storage:
    """The settings that `use` has set in this process, or in the process that started it."""
    return _parsed(os.environ.get(VARIABLE, "{}"))


def use(chosen: Storage) -> None:
    """Use these settings from now on, in this process and in those that it starts."""
    os.environ[VARIABLE] = chosen.as_text()


@lru_cache
def _parsed(text: str) -> Storage:
    return Storage.model_validate(json.loads(text))


def _is_url(given: str) -> bool:
    parts = urlsplit(given)
    try:
        port = parts.port
    except ValueError:
        return False
    is_host_alone = bool(parts.hostname) and "@" not in parts.netloc and not parts.path.strip("/")
    return parts.scheme in ("http", "https") and port != 0 and is_host_alone and not (parts.query or parts.fragment)


def _first_of(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


@lru_cache
def _asked_region(bucket: str) -> str:
    return str(pafs.resolve_s3_region(bucket))


@lru_cache(maxsize=8)  # a file system keeps its connections; renewed keys need a new one
def _s3(chosen: Storage, region: str, keys: tuple[tuple[str, str], ...]) -> pafs.S3FileSystem:
    parts = None if chosen.url is None else urlsplit(chosen.url)
    return pafs.S3FileSystem(
        **dict(keys),
        region=region,
        endpoint_override=None if parts is None else parts.netloc,
        scheme="https" if parts is None else parts.scheme,
        force_virtual_addressing=not chosen.is_path_style,
        connect_timeout=chosen.patience_s / _ATTEMPTS,
        request_timeout=chosen.patience_s / _ATTEMPTS,  # without a byte
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
        # Each writer is a thread of its own, and waits until its data is sent: otherwise data that the store has not
        # taken yet piles up in memory. A small file is one request, not three.
        background_writes=False,
        allow_delayed_open=True,
    )


@lru_cache(maxsize=8)
def _azure(account: str, account_key: str | None, endpoint: str | None) -> pafs.AzureFileSystem:
    """The file system of an Azure account. At an emulator the account is in the path, not in the host's name."""
    parts = urlsplit(endpoint) if endpoint else None
    return pafs.AzureFileSystem(
        account_name=account,
        account_key=account_key,
        blob_storage_authority=parts and parts.netloc,
        blob_storage_scheme=parts and parts.scheme,
        dfs_storage_authority=parts and parts.netloc,
        dfs_storage_scheme=parts and parts.scheme,
    )
