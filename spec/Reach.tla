-------------------------------- MODULE Reach --------------------------------
\* States that the model must be able to reach: each of these says that it cannot, and TLC must show that this is false. A model that holds because
\* nothing happens in it would be found out here. README.md says in which configuration.
EXTENDS Counterfoil

E == disk.eff[K]
Told(word) == {x \in told : x.k = K /\ x.word = word}
Ran(life)  == Cardinality(Executed(K, life))

\* Calls
NeverAReplay           == ~(Told("done") # {} /\ E.st = "done" /\ \E w \in Workers : wk[w].pc = "reporting")
NeverAPermitLost       == ~(\E w \in Workers : wk[w].pc = "heard" /\ wk[w].out = "retry" /\ world[K][wk[w].n].st = "none" /\ E.st = "in_doubt")
NeverAClaimGivenBack   == ~(E.st = "ready" /\ E.fence = 1 /\ acts = 0)
NeverAFenceAgain       == ~(\E w \in Workers : wk[w].pc = "permit" /\ wk[w].f < wk[w].n)
NeverALateDone         == ~(E.st = "done" /\ E.how = "late" /\ Told("done") # {})
NeverALateNo           == ~(\E w \in Workers : wk[w].pc = "heard" /\ wk[w].out = "failed" /\ E.st = "in_doubt" /\ wk[w].f \in E.silent)
NeverARetryThatWorks   == ~(E.st = "done" /\ E.fence = 2 /\ world[K][1].st = "refused" /\ Told("done") # {})
NeverAnExtension       == ~(\E w \in Workers : wk[w].pc = "sent" /\ wk[w].ext = 1 /\ wk[w].passed = 1 /\ E.st = "running")
NeverAKeyExpired       == ~(E.st = "expired" /\ Told("done") # {})
NeverAReportBroughtIn  == ~(faults = 1 /\ E.st = "done" /\ E.how = "reported" /\ \E w \in Workers : wk[w].pc = "heard" /\ wk[w].out = "done")

\* Doubts
NeverProbedHappened    == ~(E.st = "done" /\ E.how = "probed" /\ Told("done") # {})
NeverProbedDidNot      == ~(E.st = "done" /\ E.how = "reported" /\ E.dis = 1 /\ Told("done") # {})
NeverResolvedHappened  == ~(E.st = "done" /\ E.how = "resolved" /\ Told("done") # {})
NeverGaveUp            == ~(E.st = "failed" /\ E.dis = 1)
NeverAnEcho            == ~(tool = "keyed" /\ world[K][2].st = "echoed" /\ Told("done") # {} /\ Ran(0) = 1)
NeverADoubleOfTheSafe  == ~(Repeat = "safe" /\ Ran(0) = 2 /\ Told("done") # {})
NeverADoubtOutlives    == ~(E.st = "in_doubt" /\ E.silent = {1} /\ 2 \in words[K])
NeverALie              == ~(lied # {} /\ Ran(0) = 2 /\ E.st = "done" /\ E.how = "late")

\* Persons, requests, undo
NeverCancelledAndDone  == ~(E.st = "cancelled" /\ E.val # 0 /\ Told("cancelled") # {})
NeverASecondLife       == ~(\E x, y \in Told("done") : x.life = 0 /\ y.life = 1)
NeverAPastLifeReports  == ~(E.life = 1 /\ E.past # {} /\ Ran(0) = 1)
NeverReopened          == ~(E.st = "done" /\ [life |-> 0, word |-> "failed", val |-> 0] \in disk.rcpt[K])
NeverARaceOfTokens     == ~(answered # {} /\ \E c \in Clients : cl[c].pc = "looked" /\ disk.req[cl[c].t].st = "answered")
NeverTwoAtOneWork      == ~(\A c \in Clients : cl[c].pc = "working")
NeverATokenExpired     == ~(answered # {} /\ \E t \in Tokens : disk.req[t].st = "expired")
NeverUndone            == ~(E.st = "undone" /\ Cardinality(Executed(U, 0)) = 1)
NeverAnUndoInDoubt     == ~(E.st = "undone" /\ disk.eff[U].silent # {})
NeverUndoFailed        == ~(E.st = "undo_failed")
=============================================================================
