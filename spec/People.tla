------------------------------- MODULE People -------------------------------
\* What persons do to the effect K: from the command line, and as requests with an Idempotency-Key. (operate.rs, flush.rs, requests.rs, app.rs)
\*
\* A request's record, its answer and the change it asked for are one append.
EXTENDS Calls

OpEntry(op, v) ==
  CASE op = "cancel"         -> Cancelled
    [] op = "happened"       -> Resolved("happened", v)
    [] op = "did_not_happen" -> Resolved("did_not_happen", 0)
    [] op = "give_up"        -> Resolved("gave_up", 0)
    [] op = "reopen"         -> Reopened
    [] op = "undo"           -> UndoStarted
    [] op = "flush"          -> Flushed
Verdicts == {"happened", "did_not_happen", "give_up"}
OpEntries(op) == {OpEntry(op, v) : v \in ResultSeen(K, mem.eff[K].life, op)}

\* The entry that it is, now. Whoever says that it did not happen has looked when all had had its time.
Acting(op, x) ==
  LET e == mem.eff[K]
      spoken == op \in Verdicts
  IN  /\ Committed(K)
      /\ op = "flush" => e.life < MaxLife
      /\ op = "undo" => WithUndo
      /\ Legal(e, x)
      /\ IF spoken THEN Says(K, e.life, op, IsSo(K, e.life, op) /\ (op = "happened" \/ Settled(K, e))) ELSE UNCHANGED <<lied, words>>

Operate(op) ==
  /\ acts < MaxActs
  /\ acts' = acts + 1
  /\ \E x \in OpEntries(op) : Acting(op, x) /\ mem' = Put(K, After(mem.eff[K], x), Ends(mem.eff[K], x))
  /\ UNCHANGED <<disk, wk, cl, world, tool, told, answered, faults, guessed, claims>>

-----------------------------------------------------------------------------
\* The same as requests with an Idempotency-Key. (requests.rs, app.rs)

Lasting  == {"reopen", "undo"}          \* Work that outlasts the append: its record is pending until it is answered.
Shown(e) == <<e.st, e.val, e.life>>     \* The body of an answer.
Answered(t, op, ans) == answered' = answered \cup {[t |-> t, op |-> op, ans |-> ans]}

\* The record is looked at first: new, answered, someone's that is gone, or used for something else (then nothing happens).
Ask(c, t, op) ==
  LET r == disk.req[t] IN
  /\ cl[c].pc = "idle"
  /\ \/ /\ r.st = "absent"
        /\ cl' = [cl EXCEPT ![c] = [pc |-> "looked", t |-> t, op |-> op, ans |-> <<>>]] /\ UNCHANGED answered
     \/ /\ r.st = "pending" /\ r.op = op
        /\ cl' = [cl EXCEPT ![c] = [pc |-> "working", t |-> t, op |-> op, ans |-> <<>>]] /\ UNCHANGED answered
     \/ /\ r.st = "answered" /\ Guard("same payload", r.op = op)
        /\ Answered(t, op, r.ans) /\ answered' # answered /\ UNCHANGED cl
  /\ UNCHANGED <<ledger, wk, world, tool, told, counts, ghosts>>

\* The change, the record of the request and its answer are one append.
Change(c) ==
  LET t == cl[c].t
      op == cl[c].op
  IN  /\ cl[c].pc = "looked" /\ RequestCommitted(t)
      /\ Guard("same token, one change", mem.req[t].st = "absent")
      /\ \E x \in OpEntries(op) :
         LET n == After(mem.eff[K], x)
             r == IF op \in Lasting THEN [st |-> "pending", op |-> op, ans |-> <<>>] ELSE [st |-> "answered", op |-> op, ans |-> Shown(n)]
         IN  /\ Acting(op, x)
             /\ mem' = [Put(K, n, Ends(mem.eff[K], x)) EXCEPT !.applied[t] = @ + 1, !.req[t] = IF Broken = "record with its change" THEN @ ELSE r]
             /\ cl' = [cl EXCEPT ![c] = [@ EXCEPT !.pc = "asked", !.ans = r.ans]]
      /\ UNCHANGED <<disk, wk, world, tool, told, answered, counts, guessed, claims>>

\* Only in a broken server: the record in an append of its own.
RecordLater(c) ==
  LET t == cl[c].t IN
  /\ Broken = "record with its change" /\ cl[c].pc = "asked" /\ mem.req[t].st = "absent" /\ RequestCommitted(t)
  /\ mem' = [mem EXCEPT !.req[t] = IF cl[c].op \in Lasting THEN [st |-> "pending", op |-> cl[c].op, ans |-> <<>>]
                                   ELSE [st |-> "answered", op |-> cl[c].op, ans |-> cl[c].ans]]
  /\ UNCHANGED <<disk, wk, cl, world, tool, told, answered, counts, ghosts>>

\* The append has returned. Work that lasts goes on, anything else is answered.
Changed(c) ==
  /\ cl[c].pc = "asked" /\ Guard("record before response", RequestCommitted(cl[c].t) /\ Committed(K))
  /\ IF cl[c].op \in Lasting
     THEN cl' = [cl EXCEPT ![c].pc = "working"] /\ UNCHANGED answered
     ELSE cl' = [cl EXCEPT ![c] = Away] /\ Answered(cl[c].t, cl[c].op, cl[c].ans)
  /\ UNCHANGED <<ledger, wk, world, tool, told, counts, ghosts>>

\* The answer to work that lasted, as it stands now, with the time it took: no two servers give the same. Whoever stores it first has given it, and
\* the others look again.
StoreAnswer(c) ==
  LET t == cl[c].t
      ans == <<Shown(disk.eff[K]), c>>
  IN  /\ cl[c].pc = "working" /\ RequestCommitted(t)
      /\ IF mem.req[t].st = "pending"
         THEN /\ mem' = [mem EXCEPT !.req[t] = [st |-> "answered", op |-> cl[c].op, ans |-> ans]]
              /\ cl' = [cl EXCEPT ![c].pc = "storing", ![c].ans = ans] /\ UNCHANGED <<disk, answered>>
         ELSE /\ UNCHANGED ledger /\ cl' = [cl EXCEPT ![c] = Away]
              /\ IF Broken = "the first answer stands" THEN Answered(t, cl[c].op, ans) ELSE UNCHANGED answered
      /\ UNCHANGED <<wk, world, tool, told, counts, ghosts>>

Stored(c) ==
  /\ cl[c].pc = "storing" /\ RequestCommitted(cl[c].t)
  /\ Answered(cl[c].t, cl[c].op, cl[c].ans)
  /\ cl' = [cl EXCEPT ![c] = Away]
  /\ UNCHANGED <<ledger, wk, world, tool, told, counts, ghosts>>

\* Refused, or the connection is gone, or the process: the client asks again, or does not.
HangUp(c) ==
  /\ cl[c].pc # "idle"
  /\ cl' = [cl EXCEPT ![c] = Away]
  /\ UNCHANGED <<ledger, wk, world, tool, told, answered, counts, ghosts>>
=============================================================================
