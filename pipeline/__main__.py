"""``python -m pipeline <verb>``: the same as ``logtwin <verb>``."""

from pipeline.entry import main

if __name__ == "__main__":
    main()
