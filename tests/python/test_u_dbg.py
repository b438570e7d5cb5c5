import sys; sys.path.insert(0,'/tmp/wt4/tests/python')
from test_plans import *
def test_dbg(quiet, server, connect):
    old, new = prepared(quiet, server, connect, "loaded and analysed")
    for s in (new,):
        calls(s)
        plans = s.plans("select * from pgq_sql.sweep()")
        top = sorted(plans, key=lambda p: -p.buffers)[:25]
        for p in top: print(p.buffers, " ".join(p.statement.split())[:120])
    assert 0
