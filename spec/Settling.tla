------------------------------ MODULE Settling ------------------------------
\* When faults stop, doubts end: whoever lives goes on, the world answers or refuses, and a probe that can tell is asked. (Faults are bounded, so
\* they stop.) Nobody needs to call again, and no person to say anything.
EXTENDS Counterfoil

Fair ==
  /\ WF_vars(Sync)
  /\ \A w \in Workers : /\ WF_vars(Claim(w)) /\ WF_vars(Permit(w)) /\ WF_vars(Release(w)) /\ WF_vars(Dispatch(w) \/ PermitLost(w))
                        /\ WF_vars(HearDone(w) \/ HearNo(w) \/ HearNothing(w)) /\ WF_vars(Report(w)) /\ WF_vars(Tell(w)) /\ WF_vars(RecordProbe(w))
  /\ \A k \in Keys : /\ WF_vars(LoseLease(k)) /\ SF_vars(\E w \in Workers : Probe(w, k))
                     /\ \A n \in Attempts : WF_vars(Act(k, n) \/ Refuse(k, n))
FairSpec == Spec /\ Fair

DoubtsSettle == \A k \in Keys : (mem.eff[k].st \in {"running", "in_doubt"}) ~> (mem.eff[k].st \notin {"running", "in_doubt"})
=============================================================================
