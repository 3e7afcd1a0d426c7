------------------------------- MODULE Effect -------------------------------
\* The life of one effect as a fold of its entries: crates/counterfoil-core/src/effect.rs, without times, texts and approvals.
\*
\* What must stay true: Legal(e, x) is the table in that file's header, cell by cell, and After(e, x) its arrows. Nothing here knows of stores,
\* workers or the world. A claim is known by its fence; a result by the number of
\* the attempt that brought it about, 0 for none.
EXTENDS Naturals

CONSTANT Broken         \* The guard that is taken out, "none" in the model that must hold.

\* A guard that a mutant takes out is written so, or names `Broken` itself.
Guard(name, condition) == condition \/ Broken = name

States == {"absent", "ready", "running", "retrying", "in_doubt", "done", "failed", "cancelled",
           "undoing", "undone", "undo_failed", "flushed", "expired"}

Absent == [st |-> "absent",     \* State
           args |-> "-",        \* opened.fingerprint
           fence |-> 0,         \* of the newest claim
           own |-> "-",         \* worker of the running claim
           ext |-> 0,           \* how often its lease was extended
           before |-> "-",      \* what the running claim was made on
           silent |-> {},       \* claims that ended without a word on whether they acted
           dis |-> 0,           \* disproven: a probe or a person said that no claim up to this one acted
           past |-> {},         \* silent claims of earlier lives
           life |-> 0,          \* how often it was flushed
           val |-> 0,           \* the result; of a cancelled effect, what it did all the same
           how |-> "-"]         \* how it is known that it was done

\* Pruned: only its identity is left. Receipts are not pruned and tell the rest.
Tombstone(e) == [Absent EXCEPT !.st = "expired", !.life = e.life]

\* Some attempt may have acted, and nothing heard since says whether it did. (Facts::doubtful)
Doubtful(e) == \E f \in e.silent : f > e.dis

\* It has ended, and nobody is left who may act or may have acted unnoticed. (Facts::flushable; that a series of retries is over is a matter of time)
Flushable(e) ==
  CASE e.st \in {"done", "undone"}   -> e.how \in {"probed", "resolved"} \/ ~Doubtful(e)
    [] e.st \in {"failed", "retrying"} -> ~Doubtful(e)
    [] e.st = "cancelled"            -> e.val = 0 /\ ~Doubtful(e)
    [] OTHER                         -> FALSE

\* It may be pruned when its time has come. (Facts::expires)
Expires(e) ==
  CASE e.st \in {"flushed", "done", "failed", "undone"} -> TRUE
    [] e.st = "cancelled"                               -> e.val = 0 /\ ~Doubtful(e)
    [] OTHER                                            -> FALSE

Claimable == {"ready", "retrying", "in_doubt"}

-----------------------------------------------------------------------------
\* Entries, as in crates/counterfoil-core/src/entry.rs.

Opened(a)            == [entry |-> "opened", args |-> a]
Claimed(f, w)        == [entry |-> "claimed", fence |-> f, worker |-> w]
Extended(f)          == [entry |-> "extended", fence |-> f]
Released(f)          == [entry |-> "released", fence |-> f]
Finished(f, out, v)  == [entry |-> "finished", fence |-> f, outcome |-> out, val |-> v]   \* done, failed, retry, unknown
Lost(f)              == [entry |-> "lost", fence |-> f]
Late(f, out, v)      == [entry |-> "late", fence |-> f, outcome |-> out, val |-> v]       \* done, failed, retry: what an attempt knows
Probed(answer, v)    == [entry |-> "probed", answer |-> answer, val |-> v]                \* happened, did_not_happen
Resolved(verdict, v) == [entry |-> "resolved", verdict |-> verdict, val |-> v]            \* happened, did_not_happen, gave_up
Cancelled            == [entry |-> "cancelled"]
Reopened             == [entry |-> "reopened"]
UndoStarted          == [entry |-> "undo_started"]
UndoFinished(failed) == [entry |-> "undo_finished", failed |-> failed]
Flushed              == [entry |-> "flushed"]

Legal(e, x) ==
  CASE x.entry = "opened"    -> e.st \in {"absent", "flushed"}
    [] x.entry = "claimed"   -> e.st \in Claimable /\ x.fence > e.fence
    [] x.entry \in {"extended", "released"} -> e.st = "running" /\ x.fence = e.fence
    [] x.entry \in {"finished", "lost"} -> e.st = "running" /\ Guard("fence", x.fence = e.fence)
    [] x.entry = "late"      -> x.fence \in e.silent \cup e.past
    [] x.entry \in {"probed", "resolved"} -> e.st = "in_doubt" \/ (e.st = "cancelled" /\ e.val = 0 /\ Doubtful(e))
    [] x.entry = "cancelled" -> e.st \in {"ready", "retrying", "running"} \/ (Broken = "cancel or complete" /\ e.st = "done")
    [] x.entry = "reopened"  -> e.st \in {"failed", "retrying"}
    [] x.entry = "undo_started"  -> e.st \in {"done", "undo_failed"} \/ (e.st = "cancelled" /\ e.val # 0)
    [] x.entry = "undo_finished" -> e.st = "undoing"
    [] x.entry = "flushed"   -> Guard("flushable", Flushable(e)) /\ e.st \notin {"absent", "flushed", "expired"}
    [] OTHER                 -> FALSE

\* The running claim ended without a word.
Doubt(e) == [e EXCEPT !.st = "in_doubt", !.silent = @ \cup {e.fence}, !.before = "-", !.own = "-"]

\* It did nothing: what an earlier attempt did is as open as it was.
NotDone(e, st) == [e EXCEPT !.st = IF e.before = "in_doubt" /\ Broken # "doubt outlives a refusal" THEN "in_doubt" ELSE st, !.before = "-", !.own = "-"]

AfterFinished(e, x) ==
  CASE x.outcome = "done"    -> [e EXCEPT !.st = "done", !.val = x.val, !.how = "reported", !.before = "-", !.own = "-"]
    [] x.outcome = "failed"  -> NotDone(e, "failed")
    [] x.outcome = "retry"   -> NotDone(e, "retrying")
    [] x.outcome = "unknown" -> Doubt(e)

AfterLateDone(e, x) ==
  LET known == [e EXCEPT !.silent = @ \ {x.fence}]
      done  == [known EXCEPT !.st = "done", !.val = x.val, !.how = "late", !.before = "-", !.own = "-"]
  IN  CASE e.st = "cancelled" /\ e.val = 0 -> [known EXCEPT !.val = x.val, !.how = "late"]
        [] e.st = "running"                -> [done EXCEPT !.silent = @ \cup {e.fence}]    \* the newer claim lost its reason
        [] e.st \in {"ready", "retrying", "in_doubt", "failed"} -> IF Broken = "late done wins" THEN known ELSE done
        [] OTHER                           -> known                                        \* evidence of a double, or of what is known

\* A doubt after one silent claim said that it did nothing: closed, unless another claim is as silent as before.
AfterLateNotDone(e, x) ==
  LET known   == [e EXCEPT !.silent = @ \ {x.fence}]
      settled == IF Doubtful(known) THEN "in_doubt" ELSE IF x.outcome = "failed" THEN "failed" ELSE "retrying"
  IN  CASE e.st = "in_doubt"                           -> [known EXCEPT !.st = settled]
        [] e.st = "running" /\ e.before = "in_doubt"   -> [known EXCEPT !.before = settled]
        [] OTHER                                       -> known

AfterLate(e, x) ==
  CASE Broken = "late is kept" -> [e EXCEPT !.silent = @ \ {x.fence}, !.past = @ \ {x.fence}]
    [] x.fence \notin e.silent -> [e EXCEPT !.past = @ \ {x.fence}]
    [] x.outcome = "done"      -> AfterLateDone(e, x)
    [] OTHER                   -> AfterLateNotDone(e, x)

\* What a probe or a person says of a doubt.
Happened(e, v, how) == [e EXCEPT !.st = IF e.st = "cancelled" THEN "cancelled" ELSE "done", !.val = v, !.how = how]
DidNot(e, st)       == [e EXCEPT !.st = IF e.st = "cancelled" THEN "cancelled" ELSE st, !.dis = e.fence]

AfterResolved(e, x) ==
  CASE x.verdict = "happened"       -> Happened(e, x.val, "resolved")
    [] x.verdict = "did_not_happen" -> DidNot(e, "ready")
    [] x.verdict = "gave_up"        -> DidNot(e, "failed")

After(e, x) ==
  CASE x.entry = "opened"    -> [e EXCEPT !.st = "ready", !.args = x.args]
    [] x.entry = "claimed"   -> [e EXCEPT !.st = "running", !.before = e.st, !.fence = x.fence, !.own = x.worker, !.ext = 0]
    [] x.entry = "extended"  -> [e EXCEPT !.ext = @ + 1]
    [] x.entry = "released"  -> [e EXCEPT !.st = e.before, !.before = "-", !.own = "-"]
    [] x.entry = "finished"  -> AfterFinished(e, x)
    [] x.entry = "lost"      -> IF Broken = "lost is a doubt" THEN [e EXCEPT !.st = "ready", !.before = "-", !.own = "-"] ELSE Doubt(e)
    [] x.entry = "late"      -> AfterLate(e, x)
    [] x.entry = "probed"    -> IF x.answer = "happened" THEN Happened(e, x.val, "probed") ELSE DidNot(e, "retrying")
    [] x.entry = "resolved"  -> AfterResolved(e, x)
    [] x.entry = "cancelled" -> [e EXCEPT !.st = "cancelled", !.before = "-", !.own = "-",
                                          !.silent = IF e.st = "running" /\ Broken # "cancelled may have acted" THEN @ \cup {e.fence} ELSE @]
    [] x.entry = "reopened"  -> [e EXCEPT !.st = "ready"]
    [] x.entry = "undo_started"  -> [e EXCEPT !.st = "undoing"]
    [] x.entry = "undo_finished" -> [e EXCEPT !.st = IF x.failed THEN "undo_failed" ELSE "undone"]
    [] x.entry = "flushed"   -> [Absent EXCEPT !.st = "flushed", !.fence = e.fence, !.life = e.life + 1, !.past = e.past \cup e.silent]

\* The end that a change led to, if it is one: exactly these have a receipt, in the same append.
Ends(e, x) ==
  LET n == After(e, x)
      it(word, v) == {[life |-> e.life, word |-> word, val |-> v]}
  IN  CASE x.entry = "late"                           -> IF x.outcome = "done" /\ x.fence \in e.silent /\ Broken # "late is kept" THEN it("done", x.val)
                                                         ELSE IF n.st = "failed" /\ e.st # "failed" THEN it("failed", 0) ELSE {}
        [] n.val # 0 /\ n.val # e.val                 -> it("done", n.val)
        [] n.st = "failed" /\ e.st # "failed"         -> it("failed", 0)
        [] x.entry = "cancelled"                      -> it("cancelled", 0)
        [] n.st = "undone" /\ e.st # "undone"         -> it("undone", 0)
        [] OTHER                                      -> {}
=============================================================================
