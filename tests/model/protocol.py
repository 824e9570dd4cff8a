"""What a group does by itself: enter a collective, commit, meet, load. What may happen next is `tests.model.moves`."""

from __future__ import annotations

from tests.model.state import (
    NOTHING,
    OUT,
    STALE,
    UNKNOWN,
    At,
    Comm,
    Group,
    Options,
    Plan,
    State,
    Violation,
)


def put(items: tuple, index: int, item: object) -> tuple:  # type: ignore[type-arg]
    """The tuple with one item replaced."""
    return (*items[:index], item, *items[index + 1 :])


class Protocol:
    """The rules of a configuration."""

    def __init__(self, options: Options) -> None:
        self.o = options
        self.n, self.steps = options.groups, options.steps
        self.bits = options.groups * options.micro_batches
        self.every = (1 << self.bits) - 1
        self._schedules: dict[tuple[bool, ...], tuple[int, ...]] = {}

    # --- plans ------------------------------------------------------------------------------------------------------

    def schedule(self, members: tuple[tuple[int, int] | int, ...]) -> tuple[int, ...]:
        """Who computes what: each micro-batch its own group if it is a member, else its other host, else the least
        loaded."""
        key = tuple(bool(member) for member in members)
        if key not in self._schedules:
            live, own = [g for g in range(self.n) if key[g]], [0] * self.n
            for x in range(self.bits):
                first, second = x % self.n, (x + 1) % self.n
                hosts = [first] if key[first] else [second] if key[second] else live
                own[min(hosts, key=lambda g: (own[g].bit_count(), g))] |= 1 << x
            self._schedules[key] = tuple(own)
        return self._schedules[key]

    def members(self, plan: Plan) -> list[int]:
        """Groups of a plan."""
        return [g for g in range(self.n) if plan.members[g]]

    def number(self, plans: tuple[Plan, ...], index: int) -> int:
        """A plan's epoch."""
        return NOTHING if index < 0 else plans[index].number

    def present(self, group: Group, plan: Plan, g: int) -> bool:
        """Whether a group lives as the incarnation that a plan names."""
        member = plan.members[g]
        return group.at is not At.DEAD and not isinstance(member, int) and member[0] == group.uid

    def gone(self, s: State, index: int, g: int) -> bool:
        """Whether a member has left a plan's communicator, or can never come to it."""
        x = s.groups[g]
        if not self.present(x, s.plans[index], g):
            return True
        if x.plan == index:
            return x.at in (At.FAIL, At.STOP)
        return x.plan >= 0 and self.number(s.plans, x.plan) >= self.number(s.plans, index)

    def broken(self, s: State, index: int) -> bool:
        """Whether some member has left."""
        return any(self.gone(s, index, g) for g in self.members(s.plans[index]))

    def all_at(self, s: State, index: int, position: int) -> bool:
        """Whether all members have entered a collective."""
        comm = s.comms[index]
        assert isinstance(comm, Comm)
        return all(comm.position[g] >= position for g in self.members(s.plans[index]))

    # --- a step -----------------------------------------------------------------------------------------------------

    def enter(self, s: State, g: int, x: Group, kind: int) -> tuple[Comm | int, ...]:
        """Group g enters the reduction (0) or the barrier (1) of its step: what it gives is on the wire."""
        step, comm = len(x.history), s.comms[x.plan]
        assert isinstance(comm, Comm)
        position = 2 * step + kind
        if kind == 0:
            comm = self._contribute(comm, x, step, fresh=max(comm.position) < position)
        comm = comm._replace(position=put(comm.position, g, position))
        comms: tuple[Comm | int, ...] = put(s.comms, x.plan, comm)
        after = s._replace(comms=comms)
        if kind == 0 and comm.union != self.every and self.all_at(after, x.plan, position):
            raise Violation(f"exactly once: reduction of step {step}, plan {x.plan} holds only {comm.union:b}")
        return comms

    def _contribute(self, comm: Comm, x: Group, step: int, fresh: bool) -> Comm:
        loading = bool(self.o.early) and x.source >= 0
        union, history = (0, None) if fresh else (comm.union, comm.history)
        history = x.history if history is None and not loading else history
        if union & x.held:
            raise Violation(f"exactly once: {union & x.held:b} twice in the reduction of step {step}, plan {x.plan}")
        if not loading and history != x.history:
            raise Violation(f"members of one reduction have different histories {history} {x.history}")
        if not loading and not x.whole:
            raise Violation("a group without whole state enters a reduction")
        known = () if fresh else comm.seen[step % 2]
        seen: tuple = put(comm.seen, step % 2, tuple(sorted({*known, x.seen})))  # type: ignore[type-arg]
        return comm._replace(union=union | x.held, history=history, seen=seen)

    def commit(self, x: Group, ledger: tuple[int | None, ...], reduction: int) -> tuple[Group, tuple[int | None, ...]]:
        """Apply a reduction: from now on everybody who commits the step must do so from this one."""
        step = len(x.history)
        if reduction < 0:
            raise Violation(f"no valid reduced gradient for step {step} (W={reduction})")
        if ledger[step] is None:
            ledger = put(ledger, step, reduction)
        elif ledger[step] != reduction:
            raise Violation(f"step {step} committed from reduction of plan {ledger[step]} and of plan {reduction}")
        return self.withdrawn(x)._replace(history=(*x.history, reduction), held=0, reduced=NOTHING), ledger

    def withdrawn(self, x: Group) -> Group:
        """What it offers it gives no more, for it is about to change."""
        return x._replace(offer=()) if self.o.withdraw else x

    def entering(self, x: Group) -> Group:
        """W is about to be overwritten."""
        stale = STALE if not self.o.reset and x.reduced != NOTHING else NOTHING
        return x._replace(at=At.RED, reduced=stale)

    def compute(self, s: State, g: int) -> Group:
        """One more micro-batch. Nothing that a live member holds is computed again."""
        x, step = s.groups[g], len(s.groups[g].history)
        bit = (x.todo & ~x.held) & -(x.todo & ~x.held)
        for h in self.members(s.plans[x.plan]):
            y = s.groups[h]
            if h == g or y.at in OUT or s.plans[x.plan].members[h] != (y.uid, y.admission):
                continue
            mutual = s.plans[y.plan].members[g] == (x.uid, x.admission)
            if mutual and len(y.history) == step and y.held & bit:
                raise Violation(f"{g} computes {bit:b} of step {step}, which live member {h} holds")
        return x._replace(held=x.held | bit)

    # --- regroup ----------------------------------------------------------------------------------------------------

    def meet(self, s: State, g: int, index: int) -> State:
        """Group g acts on a plan: it leaves its communicator, and stops or says its facts in the new one."""
        x, member = s.groups[g], s.plans[index].members[g]
        if isinstance(member, int) or (member[0] != x.uid and self.o.inc):  # what it offers it still gives
            return s._replace(groups=put(s.groups, g, x._replace(at=At.STOP, plan=index, seen=index)))
        x = self.withdrawn(x)
        if self.o.inc and member[1] != x.admission:
            x = x._replace(history=(), whole=0, held=0, reduced=NOTHING)
        if s.plans[index].halt and s.plans[index].base != s.plans[index].number:  # this very commit is the last one
            return s._replace(groups=put(s.groups, g, x._replace(at=At.STOP, plan=index, seen=index)))
        x = x._replace(at=At.RDV, plan=index, seen=max(index, x.seen), uid=member[0], admission=member[1])
        x = x._replace(todo=0, source=-1)
        comm = s.comms[index]
        assert isinstance(comm, Comm)
        said = put(comm.said, g, (len(x.history), x.whole, x.reduced, x.held))
        return s._replace(groups=put(s.groups, g, x), comms=put(s.comms, index, comm._replace(said=said)))

    def inherits(self, s: State, g: int, index: int) -> State | None:
        """As `meet`, for the heir of a plan: it adds what the leaver holds to its own before it says what that is. None
        where nothing can be taken over."""
        x, plan = s.groups[g], s.plans[index]
        if plan.heir is None or plan.heir[1] != g or not x.whole:
            return None
        y = s.groups[plan.heir[0]]
        if not y.offer or self.number(s.plans, y.offer[0]) != plan.heir[2]:
            return None
        _, steps, held = y.offer
        if not held or steps != len(x.history) or held & x.held:
            return None
        if (steps, held) != (len(y.history), y.held):
            there = f"it holds {y.held:b} of step {len(y.history)} now"
            raise Violation(f"{plan.heir[0]} gives what it offered, {held:b} of step {steps}, though {there}")
        after = self.meet(s._replace(groups=put(s.groups, g, x._replace(held=x.held | held))), g, index)
        # It is given once.
        return after._replace(groups=put(after.groups, plan.heir[0], y._replace(offer=())))

    def exchanged(self, s: State, g: int) -> tuple[Group, tuple[int | None, ...]]:
        """What a member does once the exchange is complete: each computes the same from the same facts."""
        x, ledger = self.withdrawn(s.groups[g]), s.ledger
        plan, comm = s.plans[x.plan], s.comms[x.plan]
        assert isinstance(comm, Comm)
        said: dict[int, tuple[int, int, int, int]] = {m: comm.said[m] for m in self.members(plan)}  # type: ignore[misc]
        full = [m for m in said if said[m][1]]
        if not full:
            return x._replace(at=At.STOP), ledger  # a wipe-out
        c = max(said[m][0] for m in full)
        behind = [m for m in full if said[m][0] < c]
        asked = full if self.o.allc else list(said)
        sums = {said[m][2] for m in asked}
        everybody = not behind and NOTHING not in sums and (len(sums) == 1 or not self.o.rid)
        if x.whole and (g in behind or everybody):
            if len(x.history) < c - 1:
                raise Violation(f"group {g} is more than one step behind")
            x, ledger = self.commit(x, ledger, x.reduced)
        c += everybody
        if plan.halt:  # some may have stopped where we are now
            return x._replace(at=At.STOP), ledger
        held = {m: said[m][3] if m in full and said[m][0] == c else 0 for m in said}
        union = 0
        for mask in held.values():
            union |= mask
        able = tuple(plan.members[m] if m in full or (m in said and not self.o.early) else 0 for m in range(self.n))
        todo = held[g] | (self.every & ~union & self.schedule(able)[g])
        load, source = not x.whole, full[0]
        x = x._replace(held=held[g], todo=todo if c < self.steps else 0, at=At.COMP)
        if c == self.steps:
            x = x._replace(held=0)
        if load:
            x = x._replace(at=At.LOAD, source=source, whole=0)
            if self.o.early:
                x = x._replace(history=(UNKNOWN,) * c, reduced=NOTHING)
            if not self.o.load:
                x = x._replace(whole=1, history=(UNKNOWN,) * c)
        return x, ledger
