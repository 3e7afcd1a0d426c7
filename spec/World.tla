------------------------------- MODULE World --------------------------------
\* What there is, and the world: the one part that counts by itself what was done.
\*
\* Nothing that a worker or the ledger does may look at `world`, but for what it is answered: by the tool, by a probe, by a person who looked.
EXTENDS Effect, FiniteSets

CONSTANTS Workers, Clients, Tokens,
          WithUndo,     \* Whether the effect may be undone, by an effect of its own.
          Args,         \* What a call with the one key may ask for.
          Tools,        \* How the tool may be declared: see Repeat and HasProbe. One per behaviour.
          Ops,          \* What persons may do to the effect, see OpEntry,
          MaxActs,      \* and how often they do so without a token: from the command line.
          MaxClaims,    \* Claims of one key.
          MaxExtends,   \* Heartbeats of one claim.
          MaxFaults,    \* Power cuts of the store and deaths of workers, together.
          MaxLies,      \* False words of probes and persons.
          MaxLife       \* Flushes.

VARIABLES mem,          \* The store as the next compare-and-append finds it.
          disk,         \* The store as it would be found after a power cut. Readers see this one.
          wk,           \* What each worker is at. A worker is a process that makes one attempt at a time.
          cl,           \* What each client's request is at.
          world,        \* For each key and attempt: what became of its request out there.
          tool,         \* The policy, the same for all keys.
          told,         \* Answers to calls.
          answered,     \* Answers to requests with a token.
          faults, acts, \* How many of them; how many things persons did.
          lied,         \* About what someone said what was false.
          words,        \* For each key, the attempts of which someone in a position to know said: it did not act.
          guessed,      \* Someone dispatched on a guess.
          claims        \* For each key, how many claims were ever made, also such as were lost: they number the attempts.
vars == <<mem, disk, wk, cl, world, tool, told, answered, faults, acts, lied, words, guessed, claims>>
ledger == <<mem, disk>>
counts == <<faults, acts>>
ghosts == <<lied, words, guessed, claims>>

K == "k"                                        \* The effect that clients call,
U == "u"                                        \* and the one that undoes it.
Keys == IF WithUndo THEN {K, U} ELSE {K}
Attempts == 1..MaxClaims
Said == MaxClaims + 1                           \* The result of what never ran, as a person or a probe made it up.
Lives == 0..MaxLife

Nothing == [st |-> "none", life |-> 0, args |-> "-"]
Idle    == [pc |-> "idle", k |-> "-", args |-> "-", f |-> 0, n |-> 0, life |-> 0, out |-> "-", val |-> 0, ans |-> {}, fresh |-> FALSE, ext |-> 0, passed |-> 0]
Away    == [pc |-> "idle", t |-> "-", op |-> "-", ans |-> <<>>]
NoRequest == [st |-> "absent", op |-> "-", ans |-> <<>>]

Init ==
  /\ mem = [eff |-> [k \in Keys |-> Absent], rcpt |-> [k \in Keys |-> {}],
            req |-> [t \in Tokens |-> NoRequest], applied |-> [t \in Tokens |-> 0]]
  /\ disk = mem
  /\ wk = [w \in Workers |-> Idle]
  /\ cl = [c \in Clients |-> Away]
  /\ world = [k \in Keys |-> [n \in Attempts |-> Nothing]]
  /\ tool \in Tools
  /\ told = {} /\ answered = {} /\ faults = 0 /\ acts = 0 /\ lied = {}
  /\ words = [k \in Keys |-> {}] /\ guessed = FALSE /\ claims = [k \in Keys |-> 0]

Repeat == CASE tool \in {"never", "never, probed"} -> "never"
            [] tool \in {"keyed", "keyed, probed"} -> "keyed"
            [] tool \in {"safe", "safe, probed"}   -> "safe"
Repeatable == Repeat # "never"
HasProbe   == tool \in {"never, probed", "keyed, probed", "safe, probed"}

-----------------------------------------------------------------------------
Sent(k, life)     == {n \in Attempts : world[k][n].st # "none" /\ world[k][n].life = life}
Executed(k, life) == {n \in Sent(k, life) : world[k][n].st = "acted"}
Flying(k, life)   == {n \in Sent(k, life) : world[k][n].st = "flying"}

\* The key that the world is told: the same for every attempt of a life, another after a flush. (Facts::sent_key)
SentKey(k, n) == CASE Broken = "no attempt in the key" -> n
                   [] Broken = "a flush renews the key" -> 0
                   [] OTHER -> world[k][n].life
SameKey(k, n) == {m \in Attempts : world[k][m].st = "acted" /\ SentKey(k, m) = SentKey(k, n)}

\* It does what was asked. A provider that honours keys does it once per key, and answers the second time as the first.
Act(k, n) ==
  /\ world[k][n].st = "flying"
  /\ world' = [world EXCEPT ![k][n].st = IF Repeat = "keyed" /\ SameKey(k, n) # {} THEN "echoed" ELSE "acted"]
  /\ UNCHANGED <<ledger, wk, cl, tool, told, answered, counts, ghosts>>

\* It says no, or the request never arrives: either way it will not be done.
Refuse(k, n) ==
  /\ world[k][n].st = "flying"
  /\ world' = [world EXCEPT ![k][n].st = "refused"]
  /\ UNCHANGED <<ledger, wk, cl, tool, told, answered, counts, ghosts>>

ResultOf(k, n) == IF world[k][n].st = "echoed" THEN CHOOSE m \in SameKey(k, n) : TRUE ELSE n
=============================================================================
