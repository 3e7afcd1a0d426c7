------------------------------- MODULE Store --------------------------------
\* The ledger's store: durable compare-and-append, power cuts, expiry. (crates/counterfoil-store, group.rs, prune.rs)
\*
\* One record of a stream is on its way at a time: rivals wait until it is known what became of it. A power cut may come after any number of
\* syncs, so that any beginning of what was appended may be what is left.
EXTENDS World

Committed(k)        == mem.eff[k] = disk.eff[k]
RequestCommitted(t) == mem.req[t] = disk.req[t]

Put(k, e, receipts) == [mem EXCEPT !.eff[k] = e, !.rcpt[k] = @ \cup (IF Broken = "receipt with its end" THEN {} ELSE receipts)]
Append(k, x) == /\ Committed(k) /\ Legal(mem.eff[k], x)
                /\ mem' = Put(k, After(mem.eff[k], x), Ends(mem.eff[k], x))
                /\ UNCHANGED disk

\* Group commit: all that was appended becomes durable at once. Whoever looked before looked at something else: its append would conflict, and it
\* begins anew. (A broken ledger lets it write all the same.)
Sync ==
  /\ mem # disk
  /\ disk' = mem
  /\ wk' = [w \in Workers |-> IF wk[w].fresh /\ ~Committed(wk[w].k)
                              THEN IF Broken \in {"compare and append", "a probe is compared"} THEN [wk[w] EXCEPT !.fresh = FALSE] ELSE Idle
                              ELSE wk[w]]
  /\ UNCHANGED <<mem, cl, world, tool, told, answered, counts, ghosts>>

\* What was not durable is gone. Whoever waited for an append is told that it was perhaps written.
PowerCut ==
  /\ faults < MaxFaults
  /\ faults' = faults + 1
  /\ mem' = disk
  /\ wk' = [w \in Workers |-> CASE wk[w].pc = "claiming"  -> [wk[w] EXCEPT !.pc = "releasing"]
                                [] wk[w].pc = "reporting" -> [wk[w] EXCEPT !.pc = "heard", !.ans = {}]
                                [] OTHER                  -> wk[w]]
  /\ cl' = [c \in Clients |-> IF cl[c].pc \in {"asked", "storing"} THEN Away ELSE cl[c]]
  /\ UNCHANGED <<disk, world, tool, told, answered, acts, ghosts>>

\* A finished effect's time is over.
Prune(k) ==
  /\ Committed(k)
  /\ Guard("only what is at rest expires", Expires(mem.eff[k]))
  /\ mem.eff[k].st \notin {"absent", "expired"}
  /\ mem' = Put(k, IF Broken = "tombstones" THEN Absent ELSE Tombstone(mem.eff[k]), {})
  /\ UNCHANGED <<disk, wk, cl, world, tool, told, answered, counts, ghosts>>

PruneRequest(t) ==
  /\ RequestCommitted(t) /\ mem.req[t].st = "answered"
  /\ mem' = [mem EXCEPT !.req[t] = [NoRequest EXCEPT !.st = IF Broken = "tombstones of requests" THEN "absent" ELSE "expired"]]
  /\ UNCHANGED <<disk, wk, cl, world, tool, told, answered, counts, ghosts>>

\* Only in a broken ledger: the receipt in an append of its own.
SealLater(k) ==
  /\ Broken = "receipt with its end" /\ Committed(k) /\ mem.eff[k].st = "done"
  /\ mem' = [mem EXCEPT !.rcpt[k] = @ \cup {[life |-> mem.eff[k].life, word |-> "done", val |-> mem.eff[k].val]}]
  /\ UNCHANGED <<disk, wk, cl, world, tool, told, answered, counts, ghosts>>
=============================================================================
