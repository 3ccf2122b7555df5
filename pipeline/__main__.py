"""``python -m pipeline <verb>``: the same as ``logtwin <verb>``."""

from pipeline.cli.entry import main

if __name__ == "__main__":
    main()
