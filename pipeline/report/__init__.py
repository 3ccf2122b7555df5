"""``logtwin report``: a replica at a glance, as one self-contained HTML page. Begin with `run.py`.

queries   SQL over views and tables, in Spark  ->  facts     a few hundred rows, whatever the size of the replica
facts     ->  words, figures, tables, pure     ->  page      one file: text first, plots, the figures under them
"""
