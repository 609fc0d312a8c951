"""Constraints: rules, and the subsets that they allow, against brute force."""

import itertools
import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import scipy.optimize

import kofn
from kofn import BadInput, Constraints
from kofn.constraints import Always, AtLeast, AtMost, Budget, Never, NeverTogether, OnlyTogether, Rule
from kofn.constraints import allowed as module
from kofn.constraints.allowed import Allowed, Listed
from kofn.constraints.quotas import Quotas
from kofn.constraints.solver import MilpSolver
from tests.cases import for_each


def obeys(rule: Rule, subset: set[Any]) -> bool:
    """The rules once more, in words of sets: independent of the inequalities."""
    match rule:
        case AtMost(count, arms):
            return len(subset & set(arms)) <= count
        case AtLeast(count, arms):
            return len(subset & set(arms)) >= count
        case NeverTogether(arms):
            return len(subset & set(arms)) <= 1
        case OnlyTogether(arms):
            return len(subset & set(arms)) in (0, len(arms))
        case Always(arms):
            return set(arms) <= subset
        case Never(arms):
            return not subset & set(arms)
        case Budget(most, costs):
            return sum(cost for arm, cost in costs if arm in subset) <= most + 1e-9
    raise AssertionError(rule)


def brute_force(rules: Constraints, n_arms: int, k: int) -> set[tuple[int, ...]]:
    every = itertools.combinations(range(n_arms), k)
    return {subset for subset in every if all(obeys(rule, set(subset)) for rule in rules)}


def random_rules(rng: np.random.Generator, n_arms: int, k: int) -> Constraints:
    """One to five rules of random kinds, as likely to clash as not."""

    def some(least: int, most: int) -> list[int]:
        found: list[int] = rng.permutation(n_arms)[: rng.integers(least, max(least, most) + 1)].tolist()
        return found

    def one() -> Rule:
        kind = int(rng.integers(7 if n_arms > 2 else 5))
        if kind == 0:
            return AtMost(int(rng.integers(k + 1)), some(1, n_arms))
        if kind == 1:
            arms = some(1, n_arms)
            return AtLeast(int(rng.integers(min(k, len(arms)) + 1)), arms)
        if kind == 2:
            return Always(some(1, 1))
        if kind == 3:
            return Never(some(1, 2))
        if kind == 4:
            costs = {arm: round(float(4 * rng.random()), 1) for arm in some(1, n_arms)}
            return Budget(round(float(2 * k * rng.random()), 1), costs)
        return NeverTogether(some(2, 3)) if kind == 5 else OnlyTogether(some(2, 2))

    return Constraints(*(one() for _ in range(rng.integers(1, 6))))


def check_against_brute_force(seed: int) -> str:
    """Compare everything about one random rule set; return how its best subsets are found."""
    rng = np.random.default_rng(seed)
    n_arms = int(rng.integers(2, 11))
    k = int(rng.integers(1, n_arms))
    rules = random_rules(rng, n_arms, k)
    right = brute_force(rules, n_arms, k)
    try:
        found = rules.allowed(n_arms, k)
    except BadInput:
        assert not right, rules  # a feasible set is never refused
        return "refused"
    assert right, rules
    every = np.array(list(itertools.combinations(range(n_arms), k)))
    assert set(map(tuple, every[found.allows(every)].tolist())) == right
    scores = rng.normal(size=(4, n_arms))
    for score, subset in zip(scores, found.best(scores), strict=True):
        assert tuple(subset.tolist()) in right
        assert score[subset].sum() == pytest.approx(max(score[list(each)].sum() for each in right), abs=1e-9)
    sweeps = found.sweeps(1, rng)
    assert set(map(tuple, sweeps.tolist())) <= right
    assert set(sweeps.ravel().tolist()) == {arm for subset in right for arm in subset}
    assert set(map(tuple, found.random(5, rng).tolist())) <= right
    check_exchanges(found, sorted(right), scores)
    return type(found.way).__name__


def check_exchanges_of_two(found: Allowed, subset: tuple[int, ...], right: list[tuple[int, ...]]) -> None:
    """Exchanges of two arms are those of brute force."""
    others = [arm for arm in found.free.tolist() if arm not in subset]
    outs = list(itertools.combinations([arm for arm in subset if not found.always[arm]], 2))
    ins = list(itertools.combinations(others, 2))
    if outs and ins:
        hold = found.rows.hold_after(np.array(subset), np.array(outs), np.array(ins))
        after = [[tuple(sorted({*subset} - {*out} | {*into})) in right for into in ins] for out in outs]
        assert hold.tolist() == after


def check_exchanges(found: Allowed, right: list[tuple[int, ...]], scores: Any) -> None:
    """Exchanges are those of brute force; under quotas, a subset that none improves is the best."""
    for subset in right[:3]:
        exchanges = found.exchanges(np.array(subset))
        for place, arm in itertools.product(range(found.k), range(found.n_arms)):
            after = tuple(sorted({*subset[:place], *subset[place + 1 :], arm}))
            assert exchanges.may[place, arm] == (arm not in subset and after in right)
        check_exchanges_of_two(found, subset, right)
        gains = np.where(exchanges.may, scores[:, None, :] - scores[:, list(subset)][:, :, None], 0.0)
        rows, gain, out, into = exchanges.best(scores)
        assert rows.tolist() == np.flatnonzero(gains.max(axis=(1, 2)) > 0).tolist()
        assert gain == pytest.approx(gains[rows, out, into])
        assert gain == pytest.approx(gains.max(axis=(1, 2))[rows])
        if found.is_quotas:
            best = [max(score[list(each)].sum() for each in right) for score in scores]
            stuck = sorted(set(range(len(scores))) - set(rows.tolist()))
            assert scores[:, list(subset)].sum(axis=1)[stuck] == pytest.approx(np.array(best)[stuck])


def test_random_rules_against_brute_force() -> None:
    kinds = [check_against_brute_force(seed) for seed in range(300)]
    assert {"refused", "Quotas", "Listed"} <= set(kinds)


def test_the_solver_against_brute_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_TRIED", 0)
    module._made.cache_clear()
    kinds = [check_against_brute_force(seed) for seed in range(400, 440)]
    module._made.cache_clear()
    assert "MilpSolver" in kinds
    assert "Listed" not in kinds


@pytest.mark.slow
def test_ten_thousand_random_rule_sets_against_brute_force() -> None:
    for seed in range(1000, 11_000):
        check_against_brute_force(seed)


def test_classes_of_many_arms_give_the_same_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    rules, rng = Constraints.by_group(np.arange(30) % 6, at_most=1, at_least=0), np.random.default_rng(1)
    subset, values = np.array([0, 1, 2, 3]), rng.normal(size=(200, 30))
    may = rules.allowed(30, 4).exchanges(subset).may
    one_by_one = module.Exchanges(subset, may).best(values)
    monkeypatch.setattr(module, "FEW_CELLS", 0)
    by_class = module.Exchanges(subset, may)
    assert by_class._classes is not None
    for each, other in zip(one_by_one, by_class.best(values), strict=True):
        assert each.tolist() == other.tolist()


# How the best is found.


@for_each(
    "rules, way",
    [
        (Constraints(), Quotas),
        (Constraints(AtMost(2, range(5)), AtLeast(1, range(5, 9)), Always([3]), Never([8])), Quotas),
        (Constraints(NeverTogether([0, 1]), NeverTogether([2, 3])), Quotas),
        (Constraints(NeverTogether([0, 1]), NeverTogether([1, 2])), Listed),
        (Constraints(OnlyTogether([0, 1])), Listed),
        (Constraints(OnlyTogether([0, 1]), Always([1])), Quotas),
        (Constraints(Budget(7.0, dict.fromkeys(range(12), 2.0))), Quotas),
    ],
)
def test_which_way(rules: Constraints, way: type) -> None:
    assert isinstance(rules.allowed(12, 4 if rules.rules and isinstance(rules.rules[0], OnlyTogether) else 3).way, way)


def test_rules_that_only_fix_arms() -> None:
    assert Constraints(Always([1]), Never([2])).allowed(6, 3).is_fixed
    assert Constraints(AtMost(3, [0, 1, 2, 3])).allowed(6, 3).is_fixed  # it forbids nothing
    assert not Constraints(AtMost(2, [0, 1, 2, 3])).allowed(6, 3).is_fixed


def test_of_equal_scores_the_lowest_arms() -> None:
    assert Constraints(AtMost(1, [0, 1])).allowed(6, 3).first == (0, 2, 3)


def test_many_arms_are_refused() -> None:
    with pytest.raises(BadInput, match="at most 10,000 arms; got 10,001"):
        Constraints(Always([0])).allowed(10_001, 3)


def test_a_solution_within_the_solvers_tolerance_is_not_enough() -> None:
    """HiGHS accepts sums that exceed a limit by 1e-7: such a subset is excluded, and the next best is found."""
    costs = {0: 1.0, 1: 1.0 + 1e-7, 2: 0.5, 3: 0.25, 4: 0.1, 5: 0.1}
    rules = Constraints(Budget(2.0, costs), OnlyTogether([4, 5]))
    solver = MilpSolver(
        np.array([[*costs.values()]]), np.array([0.0]), np.array([2.0]), 2, lambda sums: bool((sums <= 2 + 1e-9).all())
    )
    assert rules.allows([(0, 1), (0, 2)], 6, 2).tolist() == [False, True]
    assert solver.best(np.array([[9.0, 9.0, 5.0, 1.0, 0.0, 0.0]])).tolist() == [[0, 2]]  # type: ignore[union-attr]


def test_a_hard_program_ends_with_an_allowed_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five budgets of 100 arms: the proof takes many nodes. With a limit of one, a good subset is taken."""
    rng = np.random.default_rng(4)
    budgets = (Budget(23.8, dict(enumerate(rng.uniform(1, 5, 100).round(2).tolist()))) for _ in range(5))
    allowed, score = Constraints(*budgets).allowed(100, 10), rng.normal(size=(1, 100))
    best = allowed.best(score)[0]
    nodes, program = [], scipy.optimize.milp

    def counted(*given: Any, **options: Any) -> Any:
        found = program(*given, **options)
        nodes.append(found.mip_node_count)
        return found

    monkeypatch.setattr(scipy.optimize, "milp", counted)
    monkeypatch.setattr("kofn.constraints.solver.MOST_NODES", 1)
    found = allowed.best(score)[0]
    assert allowed.allows(found[None])[0]
    assert nodes == [1]
    assert 0.9 * score[0, best].sum() < score[0, found].sum() <= score[0, best].sum()


def hard_rules() -> Constraints:
    """Return rules of which HiGHS does not know after minutes whether they can hold together."""
    rng = np.random.default_rng(3)
    return Constraints(*(AtLeast(1, rng.choice(81, 3, replace=False).tolist()) for _ in range(1080)))


def test_rules_that_are_too_hard_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kofn.constraints.solver.MOST_SECONDS", 0.2)
    with pytest.raises(BadInput, match=r"these rules are too hard: 0\.2 seconds did not show whether any subset"):
        hard_rules().allowed(81, 45)


def test_where_the_solver_finds_nothing_in_time_a_known_subset_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = NeverTogether([0, 1]), NeverTogether([1, 2]), Budget(7.5, dict.fromkeys(range(40), 1.5))
    allowed = Constraints(*rules).allowed(40, 5)
    assert isinstance(allowed.way, MilpSolver)
    nothing = SimpleNamespace(status=1, x=None)
    monkeypatch.setattr(scipy.optimize, "milp", lambda *_, **__: nothing)
    assert allowed.allows(allowed.best(np.ones((2, 40)))).all()


# Clashes.


@pytest.mark.parametrize(
    ("rules", "clash"),
    [
        ([AtMost(1, [0, 1]), Always([0]), Always([1]), Never([5])], [AtMost(1, [0, 1]), Always([0]), Always([1])]),
        ([Never([0]), AtLeast(3, [0, 1, 2]), AtMost(3, [4, 5])], [Never([0]), AtLeast(3, [0, 1, 2])]),
        ([Budget(1.0, dict.fromkeys(range(6), 1.0)), Never([5])], [Budget(1.0, dict.fromkeys(range(6), 1.0))]),
    ],
)
def test_a_clash_names_its_rules_and_no_others(rules: list[Rule], clash: list[Rule]) -> None:
    with pytest.raises(BadInput) as error:
        Constraints(*rules).allowed(6, 3)
    assert "; ".join(map(str, clash)) in str(error.value)
    assert not any(str(rule) in str(error.value) for rule in rules if rule not in clash)


def test_a_clash_cannot_be_made_smaller() -> None:
    for seed in range(2000, 2060):
        rng = np.random.default_rng(seed)
        rules = random_rules(rng, 8, 3)
        if brute_force(rules, 8, 3):
            continue
        clash = module._clash(rules.rules, 8, 3)
        assert clash is not None
        assert not brute_force(Constraints(*clash), 8, 3)
        for left_out in range(len(clash)):
            assert brute_force(Constraints(*(clash[:left_out] + clash[left_out + 1 :])), 8, 3)


def test_a_clash_that_takes_too_long_to_name_is_reported_without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_SECONDS", -1.0)
    with pytest.raises(BadInput, match=r"no 3 of 6 arms obey all 2 rules\. Which of them clash was not found"):
        Constraints(Always([0]), Never([0])).allowed(6, 3)


def test_a_rule_that_is_given_twice_is_named_once() -> None:
    twice = Always([0])
    with pytest.raises(BadInput) as error:
        Constraints(twice, twice, Never([0])).allowed(6, 3)
    assert "arms: always (0); never (0). Change" in str(error.value)


def test_few_checks_find_a_clash_among_many_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    checks, made = [], module._made

    def counted(*given: Any) -> Allowed | None:
        checks.append(given)
        return made(*given)

    monkeypatch.setattr(module, "_made", counted)
    rules = [*Constraints.by_group(np.arange(900) % 300, at_most=1), Always([0]), Always([300])]
    with pytest.raises(BadInput, match=r"at most 1 of 0 \(0, 300, 600\); always \(0\); always \(300\)"):
        Constraints(*rules).allowed(900, 5)
    assert len(checks) < 30  # of 302 rules


def test_random_subsets_differ_where_no_exchange_of_one_arm_is_allowed() -> None:
    """Twenty pairs that are only together: a random walk of exchanges of one arm cannot leave its start."""
    allowed = Constraints(*(OnlyTogether([2 * pair, 2 * pair + 1]) for pair in range(20))).allowed(40, 10)
    assert isinstance(allowed.way, MilpSolver)
    drawn = allowed.random(50, np.random.default_rng(1))
    assert allowed.allows(drawn).all()
    assert len(np.unique(drawn, axis=0)) == module.CHAINS


# Rules as data.

EVERY = Constraints(
    AtMost(2, ["a", "b", "c"], "Acme"),
    AtLeast(1, ["c", "d"]),
    NeverTogether(["a", "d"]),
    OnlyTogether(["e", "f"]),
    Always(["c"]),
    Never(["g"]),
    Budget(4.5, {"a": 1.5, "b": 2}, "shelf"),
)


def test_json_there_and_back() -> None:
    assert Constraints.of(json.loads(json.dumps(EVERY.to_list()))) == EVERY
    assert hash(Constraints.of(EVERY.to_list())) == hash(EVERY)
    assert EVERY.to_list()[0] == {"rule": "at-most", "count": 2, "arms": ["a", "b", "c"], "name": "Acme"}


def test_names_become_numbers() -> None:
    numbered = EVERY.numbered(list("gfedcba"))
    assert numbered.rules[0] == AtMost(2, [6, 5, 4], "Acme")
    assert numbered.rules[-1] == Budget(4.5, {6: 1.5, 5: 2}, "shelf")
    with pytest.raises(BadInput, match="names the arm 'g', which does not exist"):
        EVERY.numbered(list("abcdef"))


def test_arms_that_leave() -> None:
    left = EVERY.kept(list("bcdf"))
    assert left == Constraints(
        AtMost(2, ["b", "c"], "Acme"),
        AtLeast(1, ["c", "d"]),
        Never(["f"]),  # only together with e, which has left
        Always(["c"]),
        Budget(4.5, {"b": 2}, "shelf"),
    )
    with pytest.raises(BadInput, match="arm 'c' is always in, so it cannot be retired"):
        EVERY.kept(list("abd"))
    with pytest.raises(BadInput, match=r"at least 1 of \(c, d\), but only 0"):
        Constraints(AtLeast(1, ["c", "d"])).kept(["a"])
    assert Constraints(AtMost(1, [0, 3, 5])).renumbered([1, 3, 5]) == Constraints(AtMost(1, [1, 2]))


def test_broken_rules_are_named() -> None:
    assert EVERY.broken(["a", "b", "c", "e"]) == [EVERY.rules[0], EVERY.rules[3]]
    assert EVERY.broken(["b", "c"]) == []


def test_rules_of_groups_add_up() -> None:
    rules = Constraints.by_group(["x", "y", "x"], at_most=1, at_least=1) + Constraints(Always([2]))
    assert [str(rule) for rule in rules] == [
        "at most 1 of x (0, 2)",
        "at least 1 of x (0, 2)",
        "at most 1 of y (1)",
        "at least 1 of y (1)",
        "always (2)",
    ]
    assert len(rules) == 5


@for_each(
    "make, message",
    [
        (lambda: AtMost(-1, [0]), "count of the rule at-most must be a whole number of at least 0"),
        (lambda: AtMost(1, "ab"), "must be a list of arms; got 'ab'"),
        (lambda: AtMost(1, [0, 0]), "arm 0 is listed twice"),
        (lambda: AtMost(1, cast(Any, [0.5])), "must be a number or a name; got 0.5"),
        (lambda: AtMost(1, [0], cast(Any, 3)), "the name of the rule at-most must be text; got 3"),
        (lambda: NeverTogether([1]), "needs at least 2 arms"),
        (lambda: Budget(-1, {0: 1}), "must be at least 0; got most=-1"),
        (lambda: Budget(1, cast(Any, {0: "x"})), "costs of a budget must be finite numbers"),
        (lambda: Budget(1, cast(Any, 7)), "pairs of arm and cost; got 7"),
        (lambda: Constraints(cast(Any, 7)), "a rule must be one of kofn.constraints"),
        (lambda: Constraints.of("x"), "must be kofn.Constraints or a list of rules"),
        (lambda: Constraints.of([{"rule": "at-mots"}]), "did you mean 'at-most'"),
        (lambda: Constraints.of([{"rule": "at-most", "arms": [1]}]), "has the keys count, arms, name; got arms"),
        (lambda: Constraints.by_group([1, 2]), "by_group needs at_most= or at_least="),
        (lambda: Constraints(Always(["a"])).allowed(6, 2), "a number from 0 to 5; got 'a'"),
    ],
)
def test_bad_rules_are_refused(make: Any, message: str) -> None:
    with pytest.raises(BadInput) as error:
        make()
    assert message in str(error.value)


# Problems.

RULES = [
    Constraints.by_group(np.arange(12) % 4, at_most=1),
    Constraints(OnlyTogether([1, 2]), Never([11]), Budget(6, {arm: arm / 2 for arm in range(12)})),
]


@for_each("rules", RULES)
@for_each("reward", ["mean", "maximum", "minimum", "threshold"])
@for_each("direction", ["maximize", "minimize"])
def test_the_best_of_a_problem_obeys(rules: Constraints, reward: str, direction: Any) -> None:
    arms = kofn.Bernoulli(np.random.default_rng(5).random(12))
    problem = kofn.Problem(arms, reward, 3, direction=direction).under(rules)
    values = problem.value(np.array(sorted(brute_force(rules, 12, 3))))
    assert problem.optimum == pytest.approx(values.max() if direction == "maximize" else values.min())
    assert problem.best in brute_force(rules, 12, 3)


def test_too_many_subsets_are_searched_by_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = kofn.Problem(kofn.Bernoulli(np.random.default_rng(5).random(12)), "maximum", 3)
    tried = problem.under(RULES[1])
    monkeypatch.setattr("kofn.lab.problems.base.MOST_SUBSETS", 1)
    assert problem.under(RULES[1]).best == tried.best


def test_a_forbidden_subset_cannot_be_played() -> None:
    problem = kofn.Problem(kofn.Bernoulli(np.linspace(0.1, 0.9, 12)), "mean", 3).under(RULES[0])
    with pytest.raises(BadInput, match=r"\(0, 1, 4\) is not allowed: it breaks at most 1 of 0 \(0, 4, 8\)"):
        problem.play([(0, 1, 4)], [1], 1)
    with pytest.raises(BadInput, match="Give the policy the problem"):
        kofn.simulate(kofn.Thompson(12, 3, seed=1), problem, 1000, seed=1)


def test_policies_made_by_name_are_given_the_rules() -> None:
    problem = kofn.Problem(kofn.Bernoulli(np.linspace(0.1, 0.9, 12)), "mean", 3).under(RULES[0])
    found = kofn.compare(["thompson", "uniform", "oracle"], problem, 2000, runs=2, workers=1)
    regret = {row["policy"]: row["regret"] for row in found.rows}
    assert regret["oracle"] == 0
    assert regret["thompson"] < regret["uniform"]
