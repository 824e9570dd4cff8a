"""What may happen next: every action of every group, of the network and of the operator."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

from tests.model.protocol import Protocol, put
from tests.model.state import BUDGETS, NOTHING, OUT, STILL, At, Comm, Group, Options, Plan, State, Violation


class Move(NamedTuple):
    """Something that may happen."""

    label: str
    fault: bool
    state: State


class Moves(Protocol):
    """All moves of a configuration."""

    def initial(self) -> State:
        """All members compute the first step."""
        first = self.n - self.o.spare
        members = tuple((0, 0) if g < first else 0 for g in range(self.n))
        own = self.schedule(members)
        groups = tuple(
            Group(At.COMP, 0, 0, 0, 0, whole=1, todo=own[g]) if g < first else self.fresh(0) for g in range(self.n)
        )
        budget = tuple(getattr(self.o, name) for name in BUDGETS)
        return State(groups, (Plan(0, members, 0, 1),), (self.comm(),), 1, (None,) * self.steps, (*budget, 0))

    def fresh(self, uid: int) -> Group:
        """An agent that has said hello and is in no plan."""
        return Group(At.IDLE, NOTHING, NOTHING, uid, NOTHING)

    def comm(self) -> Comm:
        """A communicator that nobody has come to."""
        return Comm((NOTHING,) * self.n, (0,) * self.n)

    def has(self, s: State, name: str) -> bool:
        """Whether this failure may still happen."""
        return s.budget[BUDGETS.index(name)] > 0

    def spend(self, s: State, name: str) -> State:
        """It happens."""
        at = BUDGETS.index(name)
        return s._replace(budget=put(s.budget, at, s.budget[at] - 1))

    def cut(self, s: State, g: int) -> bool:
        """Whether the operator cannot reach the group."""
        return bool(s.budget[-1] >> g & 1)

    def of(self, s: State) -> list[Move]:
        """Everything that may happen in a state."""
        newest = s.plans[-1]
        if not any(
            s.groups[g].at not in (At.DEAD, At.STOP) and self.present(s.groups[g], newest, g)
            for g in self.members(newest)
        ):
            return []
        out: list[Move] = []
        for g in range(self.n):
            self._group(out, s, g)
            if s.groups[g].at is not At.DEAD:
                self._plans(out, s, g)
        if s.up:
            for g in range(self.n):
                self._operator(out, s, g)
            self._operator_itself(out, s)
        else:
            self.add(out, "operator is back", s._replace(up=1))
        return out

    def add(self, out: list[Move], label: str, s: State, fault: bool = False) -> None:
        """One more."""
        if s.up and not s.plans[-1].pushed and not self.has(s, "operator"):  # nothing can come between: push at once
            s = s._replace(plans=put(s.plans, len(s.plans) - 1, s.plans[-1]._replace(pushed=1)))
        out.append(Move(label, fault, self.forget(s)))

    # --- a group ----------------------------------------------------------------------------------------------------

    def _group(self, out: list[Move], s: State, g: int) -> None:
        x = s.groups[g]
        if x.at is At.DEAD:
            if self.has(s, "revive"):
                after = self.spend(s, "revive")._replace(groups=put(s.groups, g, self.fresh(x.uid + 1)))
                self.add(out, f"fresh agent in slot {g}", after, fault=True)
            return
        if self.has(s, "crash") and x.at not in (At.STOP, At.IDLE):
            dead = Group(At.DEAD, NOTHING, NOTHING, x.uid, NOTHING)
            after = self.spend(s, "crash")._replace(groups=put(s.groups, g, dead))
            where = f"{x.at.name}, plan {x.plan}, step {len(x.history)}"
            self.add(out, f"{g} CRASHES ({where})", after, fault=True)
        if self.has(s, "hand") and x.at in STILL and x.whole and not x.offer and len(x.history) < self.steps:
            y = x._replace(offer=(x.plan, len(x.history), x.held))
            text = f"{g} must leave, and offers {x.held:b} of step {len(x.history)} ({x.at.name})"
            self.add(out, text, self.spend(s, "hand")._replace(groups=put(s.groups, g, y)), fault=True)
        fails = None
        if x.at is At.COMP and x.offer and self.o.withdraw:
            self.add(out, f"{g} goes on computing", s._replace(groups=put(s.groups, g, self.withdrawn(x))))
        elif x.at is At.COMP and len(x.history) < self.steps:
            self._computes(out, s, g, x)
        elif x.at is At.RED:
            self._in_reduction(out, s, g, x)
            fails = "reduction"
        elif x.at is At.MID and (x.source < 0 or self.o.early == 2):
            after = s._replace(groups=put(s.groups, g, x._replace(at=At.BAR)), comms=self.enter(s, g, x, 1))
            self.add(out, f"{g} enters barrier {len(x.history)} of plan {x.plan}", after)
        elif x.at is At.BAR:
            if self.all_at(s, x.plan, 2 * len(x.history) + 1) and x.source < 0:
                self._commits(out, s, g, x, f"{g} leaves barrier {len(x.history)} of plan {x.plan}")
            fails = "barrier"
        elif x.at is At.RDV:
            comm = s.comms[x.plan]
            assert isinstance(comm, Comm)
            if all(comm.said[m] for m in self.members(s.plans[x.plan])):
                y, ledger = self.exchanged(s, g)
                text = f"{g} completes the exchange of plan {x.plan}" + (f", loads from {y.source}" * (y.at is At.LOAD))
                self.add(out, text, s._replace(groups=put(s.groups, g, y), ledger=ledger))
                fails = "exchange"
        if x.at is At.LOAD or (x.source >= 0 and x.at in (At.RED, At.MID, At.BAR)):
            self._loads(out, s, g, x)
        if fails:
            self._fails(out, s, g, x, fails)

    def _computes(self, out: list[Move], s: State, g: int, x: Group) -> None:
        step, todo = len(x.history), x.todo & ~x.held
        if todo:
            last = todo & (todo - 1) == 0
            x = self.compute(s, g)
            if self.o.fine or not last:
                self.add(out, f"{g} computes for step {step}", s._replace(groups=put(s.groups, g, x)))
                return
        y = self.entering(x)
        groups = put(s.groups, g, y)
        comms = self.enter(s._replace(groups=groups), g, x, 0)
        first = "computes its last and " if todo else ""
        self.add(out, f"{g} {first}enters reduction {step} of plan {x.plan}", s._replace(groups=groups, comms=comms))

    def _in_reduction(self, out: list[Move], s: State, g: int, x: Group) -> None:
        step = len(x.history)
        if not self.all_at(s, x.plan, 2 * step):
            return
        y, text = x._replace(reduced=x.plan), f"{g} leaves reduction {step} of plan {x.plan}"
        if not self.o.barrier:
            self._commits(out, s, g, y, text)
        elif self.o.fine or x.source >= 0:
            self.add(out, text, s._replace(groups=put(s.groups, g, y._replace(at=At.MID))))
        else:
            after = s._replace(groups=put(s.groups, g, y._replace(at=At.BAR)), comms=self.enter(s, g, y, 1))
            self.add(out, f"{text}, enters its barrier", after)

    def _commits(self, out: list[Move], s: State, g: int, x: Group, text: str) -> None:
        """The next step, or the newest plan known here when every member has seen a newer one."""
        comm = s.comms[x.plan]
        assert isinstance(comm, Comm)
        seen = comm.seen[len(x.history) % 2]
        y, ledger = self.commit(x, s.ledger, x.reduced)
        todo = self.schedule(s.plans[x.plan].members)[g] if len(y.history) < self.steps else 0
        s = s._replace(groups=put(s.groups, g, y._replace(at=At.COMP, todo=todo)), ledger=ledger)
        if min(self.number(s.plans, i) for i in seen) > self.number(s.plans, x.plan):
            text += f", goes to boundary plan {x.seen}"
            s = self.meet(s, g, x.seen)
        self.add(out, f"{text}, commits", s)

    def _loads(self, out: list[Move], s: State, g: int, x: Group) -> None:
        step, donor = len(x.history), s.groups[x.source]
        if self.o.early and x.at is At.LOAD and step < self.steps:
            y = x._replace(at=At.RED)
            groups = put(s.groups, g, y)
            comms = self.enter(s._replace(groups=groups), g, y, 0)
            text = f"{g}, still loading, enters reduction {step} of plan {x.plan} with zeros"
            self.add(out, text, s._replace(groups=groups, comms=comms))
        if self.gone(s, x.plan, x.source) or donor.plan != x.plan:
            y = x._replace(at=At.FAIL, source=-1, todo=0)
            self.add(out, f"{g} fails to load from {x.source}", s._replace(groups=put(s.groups, g, y)))
        elif donor.at is not At.RDV and donor.whole:
            self.not_torn(x, donor, step)
            y = x._replace(history=donor.history, whole=1, source=-1)
            y = y._replace(at=At.COMP if x.at is At.LOAD else x.at, held=x.held if self.o.early else 0)
            text = f"{g} has loaded step {len(donor.history)} from {x.source}"
            self.add(out, text, s._replace(groups=put(s.groups, g, y)))

    def _fails(self, out: list[Move], s: State, g: int, x: Group, what: str) -> None:
        after = s._replace(groups=put(s.groups, g, x._replace(at=At.FAIL, todo=0, source=-1)))
        if self.broken(s, x.plan):
            self.add(out, f"{g} FAILS in its {what} of plan {x.plan}", after)
        elif self.has(s, "link"):
            after = after._replace(budget=self.spend(s, "link").budget)
            self.add(out, f"{g} FAILS in its {what} of plan {x.plan} (nobody died)", after, fault=True)

    # --- plans on their way -----------------------------------------------------------------------------------------

    def _plans(self, out: list[Move], s: State, g: int) -> None:
        x = s.groups[g]
        waits = bool(self.o.wait) and (x.at is At.RDV or (x.at is At.COMP and len(x.history) == self.steps))
        if waits and self.number(s.plans, x.seen) > self.number(s.plans, x.plan):
            self.add(out, f"{g} waits in plan {x.plan} and moves on to plan {x.seen}", self.meet(s, g, x.seen))
        if self.has(s, "cut") and x.at not in (At.STOP, At.IDLE):
            after = self.spend(s, "cut")
            after = after._replace(budget=put(after.budget, len(BUDGETS), after.budget[-1] | 1 << g))
            self.add(out, f"{g} is CUT OFF from the operator, not from its peers", after, fault=True)
        for i, plan in enumerate(s.plans if not self.cut(s, g) else ()):
            if plan.pushed and plan.number > self.number(s.plans, x.seen):
                self._told(out, s, g, i, waits)

    def _told(self, out: list[Move], s: State, g: int, i: int, waits: bool) -> None:
        x, plan = s.groups[g], s.plans[i]
        member = plan.members[g]
        other = not isinstance(member, int) and member[0] != x.uid
        if x.at is At.STOP and x.plan >= 0 and s.plans[x.plan].halt:
            return  # it has ended
        if (self.o.inc and other) or (member == 0 and x.at in (At.STOP, At.IDLE)):
            return
        urgent = plan.base > self.number(s.plans, x.plan) if self.o.base else plan.base == plan.number
        again = not isinstance(member, int) and self.o.inc and member[1] != x.admission
        if urgent or waits or again or x.at in (At.STOP, At.IDLE):
            self.add(out, f"{g} gets plan {i}{'' if member else ' (without it)'} and acts", self.meet(s, g, i))
            if (after := self.inherits(s, g, i)) is not None:
                self.add(out, f"{g} gets plan {i}, takes over what {plan.heir[0]} holds, and acts", after)  # type: ignore[index]
        else:
            self.add(out, f"{g} gets boundary plan {i}", s._replace(groups=put(s.groups, g, x._replace(seen=i))))

    # --- the operator -----------------------------------------------------------------------------------------------

    def write(self, s: State, members: tuple, urgent: bool, halt: int = 0) -> State:  # type: ignore[type-arg]
        """Another plan. An urgent one is one to halt where some have: the others hold that step and must not go on."""
        newest = s.plans[-1]
        number = newest.number + 1
        halt = halt or int(urgent and any(x.at is At.STOP and x.plan >= 0 and s.plans[x.plan].halt for x in s.groups))
        plan = Plan(number, members, number if urgent else newest.base, 0, halt)
        return s._replace(plans=(*s.plans, plan), comms=(*s.comms, self.comm()))

    def _operator(self, out: list[Move], s: State, g: int) -> None:
        new, newest, x = len(s.plans), s.plans[-1], s.groups[g]
        without = put(newest.members, g, 0)
        others = [h for h in self.members(newest) if h != g and s.groups[h].at not in (At.DEAD, At.STOP)]
        member = newest.members[g]
        if member and others and (not self.present(x, newest, g) or self.cut(s, g) or self._stopped(s, g)):
            self.add(out, f"operator writes plan {new} without {g} (dead)", self.write(s, without, urgent=True))
        if x.at is At.DEAD:
            return
        if member and others and self.present(x, newest, g):
            if self.has(s, "false"):
                after = self.write(self.spend(s, "false"), without, urgent=True)
                self.add(out, f"operator SUSPECTS {g}, writes plan {new} without it", after, fault=True)
            whole = [h for h in others if s.groups[h].whole and s.groups[h].source < 0]
            if self.has(s, "drain") and (len(whole) >= 2 or not self.o.guard):
                after = self.write(self.spend(s, "drain"), without, urgent=False)
                self.add(out, f"operator writes boundary plan {new} to drain {g}", after, fault=True)
        offered = self.number(s.plans, x.offer[0]) if x.offer and x.at is not At.STOP else NOTHING
        if offered != NOTHING and others and (newest.base <= offered or not self.o.first):
            for h in (h for h in others if s.groups[h].whole and s.groups[h].source < 0):
                after = self.write(s, without, urgent=True)
                heir = after.plans[-1]._replace(heir=(g, h, offered))
                after = after._replace(plans=put(after.plans, new, heir))
                self.add(out, f"operator writes plan {new} without {g}, {h} takes over what it holds", after)
        if member and x.at is At.FAIL and self._all_reachable(s, newest):
            answered = newest.base > self.number(s.plans, x.plan) if self.o.ans else x.plan != new - 1
            if not answered:
                after = self.write(s, newest.members, urgent=True)
                self.add(out, f"operator answers failure of {g} in plan {x.plan} with plan {new}", after)
        elif not member and self.has(s, "rejoin") and not self.cut(s, g) and not newest.halt:
            after = self.write(self.spend(s, "rejoin"), put(newest.members, g, (x.uid, new)), urgent=False)
            self.add(out, f"operator writes boundary plan {new} to admit {g}", after, fault=True)
        if member and self.has(s, "twin") and not self.o.cas and new > 1:
            self._twin(out, s)

    def _stopped(self, s: State, g: int) -> bool:
        """Whether a member has halted while others still need a plan in order to do so."""
        x, last = s.groups[g], len(s.plans) - 1
        if x.at is not At.STOP or not s.plans[x.plan].halt:
            return False
        return x.plan != last or any(s.groups[m].at is At.FAIL for m in self.members(s.plans[last]))

    def _all_reachable(self, s: State, newest: Plan) -> bool:
        return not any(
            self.cut(s, m) or not self.present(s.groups[m], newest, m) or self._stopped(s, m)
            for m in self.members(newest)
        )

    def _quiet(self, s: State) -> bool:
        """Whether all members run under the newest plan: only then it is followed by an order to halt."""
        last = len(s.plans) - 1
        running = (At.COMP, At.RED, At.MID, At.BAR)
        return not s.plans[last].halt and all(
            s.groups[m].plan == last and s.groups[m].at in running and s.groups[m].source < 0
            for m in self.members(s.plans[last])
        )

    def _twin(self, out: list[Move], s: State) -> None:
        """A second operator that knows nothing of the newest plan writes another one with its number."""
        newest, before = s.plans[-1], s.plans[-2]
        members = tuple(0 if newest.members[h] else before.members[h] for h in range(self.n))
        if any(members):
            after = self.spend(s, "twin")
            plan = Plan(newest.number, members, newest.number, 1)
            after = after._replace(plans=(*s.plans, plan), comms=(*s.comms, self.comm()))
            self.add(out, f"second operator writes another plan numbered {newest.number}", after, fault=True)

    def _operator_itself(self, out: list[Move], s: State) -> None:
        newest = s.plans[-1]
        if not newest.pushed:
            after = s._replace(plans=put(s.plans, len(s.plans) - 1, newest._replace(pushed=1)))
            self.add(out, f"operator pushes plan {len(s.plans) - 1}", after)
        if self.has(s, "operator"):
            self.add(out, "operator CRASHES", self.spend(s, "operator")._replace(up=0), fault=True)
        if self.has(s, "halt") and self._quiet(s):
            after = self.write(self.spend(s, "halt"), newest.members, urgent=False, halt=1)
            self.add(out, f"operator writes boundary plan {len(s.plans)} to halt", after, fault=True)

    # --- ends -------------------------------------------------------------------------------------------------------

    def not_torn(self, x: Group, donor: Group, step: int) -> None:
        """The donor is where it was when the exchange was complete."""
        if self.o.early and len(donor.history) != step:
            raise Violation(f"torn load: {x.source} stepped to {len(donor.history)} while step {step} was loaded")

    def forget(self, s: State) -> State:
        """Forget what nobody can reach any more, so that equal futures are equal states."""
        low = min((self.number(s.plans, x.plan) for x in s.groups if x.at not in OUT), default=0)
        for g, x in enumerate(s.groups):
            if x.at in (At.STOP, At.IDLE):  # it may still be told an old plan
                told = [p.number for p in s.plans if p.members[g] and p.number > self.number(s.plans, x.seen)]
                low = min([low, *told])
        comms = tuple(c if c and self.number(s.plans, i) >= low else 0 for i, c in enumerate(s.comms))
        groups = tuple(
            x._replace(history=(), whole=0, held=0, reduced=NOTHING, todo=0, source=-1, offer=())
            if x.at is At.STOP and self.o.inc and not s.plans[x.plan].halt and not self._gives(s, g, x)
            else x
            for x in s.groups
        )
        return s._replace(comms=comms, groups=groups)

    def _gives(self, s: State, g: int, x: Group) -> bool:
        """Whether somebody may still take over what a group holds that has stopped."""
        if not x.offer:
            return False
        wanted = [plan for plan in s.plans if plan.heir and plan.heir[0] == g]
        return any(self.number(s.plans, s.groups[plan.heir[1]].plan) < plan.number for plan in wanted if plan.heir)

    def good_end(self, s: State) -> str | None:
        """What a state is in which nothing can happen but failures: finished, halted, a wipe-out; None: stuck."""
        newest = s.plans[-1]
        live = [g for g in self.members(newest) if s.groups[g].at not in (At.DEAD, At.STOP)]
        live = [g for g in live if self.present(s.groups[g], newest, g)]
        if newest.halt and not live:
            return self._halted(s)
        if not any(s.groups[g].whole for g in live):
            if self.o.strict and any(x.at not in (At.DEAD, At.IDLE) for x in s.groups):
                return None
            return "wipe-out"
        for i, plan in enumerate(s.plans):
            done = {
                g for g, x in enumerate(s.groups) if x.plan == i and x.at is At.COMP and len(x.history) == self.steps
            }
            rest = {g for g in self.members(plan) if self.present(s.groups[g], plan, g)}
            if done and newest.base <= plan.number and rest <= done:
                return "finished"
        return None

    def _halted(self, s: State) -> str | None:
        """All that halted did so after the same step. Who stopped because the plan is without it has not halted."""
        stopped = [(g, x) for g, x in enumerate(s.groups) if x.at is At.STOP and x.whole and s.plans[x.plan].halt]
        steps = {len(x.history) for g, x in stopped if g in self.members(s.plans[x.plan])}
        return "halted" if len(steps) <= 1 else None


def options(**known: int) -> Options:
    """Options by name; unknown names are refused."""
    allowed = {field.name for field in fields(Options)}
    if wrong := set(known) - allowed:
        raise ValueError(f"unknown options {sorted(wrong)}; known are {sorted(allowed)}")
    return Options(**known)
