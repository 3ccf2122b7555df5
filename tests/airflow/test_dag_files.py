"""The DAG files as Airflow's parser sees them: no errors, quick, alone, and forms that explain themselves."""

import ast
import json
import re
from typing import Any

import pytest

from tests.airflow.installation import DAG_IDS, DAGS, Airflow, Api
from tests.documents import blocks
from tests.test_commands_doc import unknown

pytestmark = pytest.mark.airflow

READ_THE_FILES = """
import importlib, json, sys, time
begun = time.process_time()
import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit
took, alone = {}, time.process_time() - begun
for name in %r:
    start = time.process_time()
    importlib.import_module(name)
    took[name] = time.process_time() - start
print(json.dumps({"alone": alone, "took": took, "all": sorted(sys.modules)}))
"""

DEFAULTS_AND_MANY_HOLES = """
import json, logtwin_submit
from logtwin_backfill import fills
holes = [{"start": 10 * at, "end": 10 * at + 5} for at in range(1234)]
filled = {count: fills({"holes": holes[:count]}) for count in (0, 1, 2, 100, 1234)}
print(json.dumps({"defaults": dict(logtwin_submit.DEFAULTS), "fills": filled}))
"""


WITHOUT_CONNECTION = """
import json
from logtwin_submit import Verb
verb = Verb(task_id="t", verb="maintain", options=())
del verb._conn_id
try:
    verb._connect_by("spark_default")
except Exception as error:
    print(json.dumps(str(error)))
"""


EXAMPLES = """
import http.server, json, os, threading
heard = []
class Chat(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
chat = http.server.HTTPServer(("127.0.0.1", 0), Chat)
threading.Thread(target=chat.handle_request, daemon=True).start()
os.environ["CHAT_WEBHOOK"] = f"http://127.0.0.1:{chat.server_port}/"

policy, shell = %r
rules, by_shell = {}, {}
exec(policy, rules)
exec(shell, by_shell)
from logtwin_backfill import fill, holes
verify = by_shell["verify"]
other = by_shell["BashOperator"](task_id="other", bash_command="true", dag=by_shell["DAG"]("another"))
for task in (holes, fill, verify, other):
    rules["task_policy"](task)
mail, tell = holes.on_failure_callback
class Instance:
    dag_id, task_id = "logtwin_backfill", "holes"
tell({"task_instance": Instance, "exception": ValueError("exit code 5")})
print(json.dumps({
    "told": {t.task_id: len(t.on_failure_callback) for t in (holes, fill, verify, other)}, "heard": heard,
    "mail": [type(mail).__name__, mail.to, mail.subject], "command": verify.bash_command,
    "schedule": verify.dag.schedule,
}))
"""


@pytest.fixture(scope="module")
def told(airflow: Airflow) -> Any:
    """What one interpreter says to both: each takes seconds to import Airflow."""
    return airflow.python(DEFAULTS_AND_MANY_HOLES)


def test_airflow_reads_the_files_without_an_error_and_knows_when_they_run(api: Api) -> None:
    assert api.ask("GET", "/api/v2/importErrors")["import_errors"] == []
    dags = api.ask("GET", "/api/v2/dags?tags=logtwin")["dags"]
    assert {dag["dag_id"]: dag["timetable_summary"] for dag in dags} == {
        "logtwin_backfill": None,
        "logtwin_maintain": "15 * * * *",
        "logtwin_replicate": "*/10 * * * *",
        "logtwin_verify": "0 3 * * *",
        "logtwin_verify_whole": "0 5 * * 0",
    }


def test_files_are_read_without_logtwin_and_in_less_than_airflow_takes(airflow: Airflow) -> None:
    read = airflow.python(READ_THE_FILES % [file.stem for file in sorted(DAGS.glob("logtwin_*.py"))])
    assert len(read["took"]) == 5
    assert sum(read["took"].values()) < read["alone"], read["took"]
    assert not {"pipeline", "sinks", "sources", "pyspark"} & set(read["all"])


@pytest.mark.parametrize("dag_id", sorted(DAG_IDS))
def test_a_form_says_what_each_field_is(api: Api, dag_id: str) -> None:
    dag = api.ask("GET", f"/api/v2/dags/{dag_id}/details")
    assert dag["catchup"] is False
    assert len(dag["doc_md"]) > 200
    assert {"config", "connection"} <= set(dag["params"])
    assert "log" in dag["params"] or dag_id == "logtwin_replicate"  # the verb replicates all of a configuration
    for name, field in dag["params"].items():
        assert field["schema"]["title"], name
        assert re.fullmatch(r"\S.{10,}", field["schema"].get("description") or field["description"]), name


def test_the_readme_names_the_defaults_of_the_variable(told: Any) -> None:
    [shown] = re.findall(r"variables set logtwin '(\{.*?\n +\})'", (DAGS / "README.md").read_text(), re.DOTALL)
    assert json.loads(shown) == told["defaults"]


def test_many_holes_share_their_submissions(told: Any) -> None:
    found = {int(count): ranges for count, ranges in told["fills"].items()}
    assert found[0] == []
    assert found[1] == [{"from": 0, "to": 5}]
    assert found[2] == [{"from": 0, "to": 5}, {"from": 10, "to": 15}]
    assert len(found[100]) == 100
    assert len(found[1234]) <= 100
    for count, ranges in found.items():
        within = [
            [one for one in ranges if one["from"] <= 10 * hole and 10 * hole + 5 <= one["to"]] for hole in range(count)
        ]
        assert all(len(around) == 1 for around in within)  # each hole is filled, and by one submission


def test_a_provider_that_keeps_its_connection_elsewhere_is_not_let_run(airflow: Airflow) -> None:
    """It would submit to the default connection, without a word."""
    assert "install one of requirements.txt" in airflow.python(WITHOUT_CONNECTION)


def test_names_that_airflow_has_moved_come_from_who_knows_where_they_are() -> None:
    """`airflow.sdk` of 3.0 has no BaseHook, and that of 3.1 no AirflowFailException."""
    for file in DAGS.glob("logtwin_*.py"):
        modules = {
            node.module or "" for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)
        }
        assert {one for one in modules if one.startswith("airflow.")} <= {
            "airflow.providers.common.compat.sdk",
            "airflow.providers.apache.spark.operators.spark_submit",
        }, file.name


def test_the_examples_of_the_readme(airflow: Airflow) -> None:
    """The policy tells of each task of ours, mapped ones too, and of no other; the DAG for Airflow 2 is one."""
    examples = [block.text for block in blocks("airflow_dags/README.md") if block.language == "python"]
    found = airflow.python(EXAMPLES % (examples,))
    assert found["told"] == {"holes": 2, "fill": 2, "verify": 2, "other": 0}
    assert found["heard"] == [{"text": "logtwin_backfill.holes failed: exit code 5"}]
    assert found["mail"] == ["SmtpNotifier", "lake@example.com", "{{ ti.dag_id }}.{{ ti.task_id }} failed"]
    command = found["command"].removeprefix("/opt/logtwin/bin/logtwin ")
    assert unknown(command) == []
    assert found["schedule"] == "0 3 * * *"
