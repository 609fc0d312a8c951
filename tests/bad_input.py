"""Wrong calls and their error messages, as data: `python -m tests.bad_input > docs/reference/errors.md` makes the page.

A call is the text of one Python expression, evaluated after `SETUP`, or the arguments of the command line, run in a
folder that holds one file, `taken`.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kofn import BadInput, BadRecord, BadReward, BadScore, BadTally, KofnError, TooManySubsets

SETUP = """\
import numpy as np
import kofn
from kofn.lab import logs, problems, rewards, theory

policy = kofn.CMABSM(n_arms=6, k=2, horizon=1_000_000)
latency = kofn.CMABSM(6, 2, 1_000_000, reward_range=(0, 250), direction="minimize")
used = kofn.CMABSM(6, 2, 1_000_000)
used.tell(used.ask(), 1)
ucb = kofn.lab.rivals.ImprovedUCB(6, 2, 1_000_000)
plan = policy.plan()
ones = np.ones(len(plan))
record = kofn.save(used)
arms = kofn.Bernoulli([0.1, 0.3, 0.5, 0.6, 0.8, 0.9])
problem = kofn.Problem(arms, "maximum", k=2)
run = kofn.simulate(kofn.CMABSM(6, 2, 1_000_000), problem, 1_000_000, seed=1)
"""


@dataclass(frozen=True)
class Wrong:
    """A wrong call; its error message starts with `message`."""

    name: str
    call: str
    error: type[KofnError]
    message: str


@dataclass(frozen=True)
class WrongCommand:
    """A wrong command line; the line on stderr starts with `message`."""

    name: str
    argv: str
    message: str


SECTIONS: dict[str, list[Wrong]] = {
    "Making a policy": [
        Wrong("k = N", "kofn.CMABSM(5, 5, horizon=1000)", BadInput, "k must be less than n_arms; got k=5 and n_arms=5"),
        Wrong("k = 0", "kofn.CMABSM(5, 0, horizon=1000)", BadInput, "k must be a whole number of at least 1, not 0"),
        Wrong("half an arm", "kofn.CMABSM(5.5, 2, horizon=1000)", BadInput, "n_arms must be a whole number, not 5.5"),
        Wrong("no horizon", "kofn.CMABSM(5, 2, horizon=0)", BadInput, "horizon must be a whole number of at least 1"),
        Wrong("horizon as text", "kofn.CMABSM(5, 2, '1e6')", BadInput, "horizon must be a whole number, not '1e6'"),
        Wrong(
            "resolution above 1",
            "kofn.CMABSM(5, 2, 1000, resolution=1.5)",
            BadInput,
            "resolution must be at least 1e-30",
        ),
        Wrong(
            "resolution too fine",
            "kofn.CMABSM(5, 2, 1000, resolution=1e-12)",
            BadInput,
            "a resolution of 1e-12 takes 39 rounds, whose plays do not fit in 64 bits: use at least",
        ),
        Wrong(
            "unknown schedule",
            "kofn.CMABSM(5, 2, 1000, schedule='fast')",
            BadInput,
            "schedule must be 'printed', ",
        ),
        Wrong(
            "unknown direction",
            "kofn.CMABSM(5, 2, 1000, direction='up')",
            BadInput,
            "direction must be 'maximize' or 'minimize', not 'up'",
        ),
        Wrong(
            "range upside down",
            "kofn.CMABSM(5, 2, 1000, reward_range=(1, 0))",
            BadInput,
            "reward_range needs two finite numbers with low < high, not (1, 0)",
        ),
        Wrong(
            "range of one number",
            "kofn.CMABSM(5, 2, 1000, reward_range=250)",
            BadInput,
            "reward_range is two numbers (low, high), not 250",
        ),
        Wrong("negative seed", "kofn.CMABSM(5, 2, 1000, seed=-1)", BadInput, "seed must be at least 0, not -1"),
        Wrong(
            "seed as text", "kofn.CMABSM(5, 2, 1000, seed='x')", BadInput, "seed must be an int, a SeedSequence or a"
        ),
        Wrong(
            "too many subsets",
            "kofn.lab.rivals.ImprovedUCB(100, 50, 1000)",
            TooManySubsets,
            "50 of 100 arms make ",
        ),
        Wrong(
            "doubling of what needs no horizon",
            "kofn.Doubling(lambda horizon: 7)",
            BadInput,
            "the factory of Doubling must create a policy that needs a horizon; it created 7",
        ),
        Wrong(
            "unknown policy",
            "kofn.make_policy('cmabsm', 5, 2)",
            BadInput,
            "there is no policy 'cmabsm': did you mean 'cmab-sm'? Available: case, cmab-sm, ",
        ),
        Wrong(
            "a policy without its horizon",
            "kofn.make_policy('cmab-sm', 5, 2)",
            BadInput,
            "cmab-sm needs a horizon: give horizon= (--horizon), or use doubling",
        ),
        Wrong(
            "unknown parameter",
            "kofn.make_policy('cmab-sm', 5, 2, horizon=1000, epsilon=0.1)",
            BadInput,
            "cmab-sm does not take epsilon; it takes: constraints, direction, horizon, resolution, reward_range",
        ),
    ],
    "Telling rewards": [
        Wrong(
            "reward above 1",
            "policy.tell(policy.ask(), 1.5)",
            BadReward,
            "a reward must be between 0 and 1 (reward_range)",
        ),
        Wrong(
            "reward below 0",
            "policy.tell((1, 2), -0.1)",
            BadReward,
            "a reward must be between 0 and 1 (reward_range); got",
        ),
        Wrong(
            "NaN",
            "policy.tell((1, 2), float('nan'))",
            BadReward,
            "a reward must be between 0 and 1 (reward_range); got nan",
        ),
        Wrong(
            "infinity",
            "latency.tell((1, 2), float('inf'))",
            BadReward,
            "a reward must be between 0 and 250 (reward_range)",
        ),
        Wrong("text", "policy.tell((1, 2), 'good')", BadReward, "a reward must be one number; got 'good'"),
        Wrong("nothing", "policy.tell((1, 2), None)", BadReward, "a reward must be one number; got None"),
        Wrong("two rewards", "policy.tell((1, 2), [0, 1])", BadReward, "a reward must be one number; got [0, 1]"),
        Wrong(
            "outside its own range",
            "latency.tell((1, 2), 300)",
            BadReward,
            "a reward must be between 0 and 250 (reward_",
        ),
        Wrong("one arm twice", "policy.tell((1, 1), 1)", BadInput, "a subset must have 2 different arms; got (1, 1)"),
        Wrong(
            "three arms", "policy.tell((1, 2, 3), 1)", BadInput, "a subset must have 2 different arms; got (1, 2, 3)"
        ),
        Wrong("no such arm", "policy.tell((1, 6), 1)", BadInput, "an arm must be a number from 0 to 5; got (1, 6)"),
        Wrong("not a subset", "policy.tell(3, 1)", BadInput, "a subset must be 2 arms from 0 to 5; got 3"),
        Wrong(
            "names for arms",
            "policy.tell(('a', 'b'), 1)",
            BadInput,
            "a subset must be 2 arms from 0 to 5; got ('a', 'b')",
        ),
        Wrong(
            "not in the plan",
            "policy.tell((0, 5), 1)",
            BadTally,
            "(0, 5) is not in the plan: play the subsets that ask() or plan() returns",
        ),
        Wrong(
            "a context for a policy that takes none",
            "policy.ask({'device': 'phone'})",
            BadInput,
            "cmab-sm does not take a context; use contextual-thompson",
        ),
        Wrong(
            "an attribute that is not declared",
            "kofn.ContextualThompson(6, 2, attributes=['device']).ask({'size': 'xl'})",
            BadInput,
            "the context has size, which is not declared; the attributes are: device",
        ),
        Wrong(
            "a number as a value of an attribute",
            "kofn.ContextualThompson(6, 2).ask({'age': 27.5})",
            BadInput,
            "the value of 'age' must be text, a whole number or true or false; got 27.5. For a number such as an age,",
        ),
        Wrong("not a tally", "policy.tell_plan([1, 0, 1])", BadTally, "tell_plan takes a Tally, not list: Tally.of("),
        Wrong(
            "too few rows",
            "policy.tell_plan(kofn.Tally.of([[1, 0]]))",
            BadTally,
            "a tally must have one row for each of the 6 rows of the plan; got shape (1,)",
        ),
        Wrong(
            "more plays than remaining",
            "policy.tell_plan(kofn.Tally(plan.times + 1, 0 * ones, 0 * ones))",
            BadTally,
            "only ",
        ),
        Wrong(
            "a total that is too large",
            "policy.tell_plan(kofn.Tally(np.full(len(plan), 2), 3 * ones, 3 * ones))",
            BadReward,
            "a reward must be between 0 and 1 (reward_range); got ",
        ),
        Wrong(
            "squares that cannot be",
            "policy.tell_plan(kofn.Tally(np.full(len(plan), 2), ones, 2 * ones))",
            BadReward,
            "2 rewards from 0 to 1 that add up to 1 cannot have squares that add up to 2",
        ),
        Wrong(
            "a total that is NaN",
            "policy.tell_plan(kofn.Tally(np.full(len(plan), 2), np.nan * ones, ones))",
            BadReward,
            "totals and squares must be finite numbers; got ",
        ),
        Wrong(
            "counts that are not whole",
            "policy.tell_plan(kofn.Tally(0.5 * ones, 0 * ones, 0 * ones))",
            BadTally,
            "a tally's count must be whole numbers",
        ),
    ],
    "Keeping and restoring": [
        Wrong(
            "not a record",
            "kofn.restore('policy')",
            BadRecord,
            "a record must have the keys policy, format, params and state",
        ),
        Wrong(
            "half a record",
            "kofn.restore({'policy': 'cmab-sm', 'format': 1})",
            BadRecord,
            "a record must have the keys policy, format, params and state",
        ),
        Wrong(
            "another version",
            "kofn.restore(record | {'format': 99})",
            BadRecord,
            "this record has format 99; this kofn reads format 2",
        ),
        Wrong(
            "another policy",
            "kofn.restore(record | {'policy': 'dart-2'})",
            BadRecord,
            "this record is of the policy 'dart-2', which this kofn does not have",
        ),
        Wrong(
            "other parameters",
            "kofn.restore(record | {'params': {'n_arms': 6}})",
            BadRecord,
            "the record's params do not make a cmab-sm: ",
        ),
        Wrong(
            "another shape", "kofn.CMABSM(9, 2, 1_000_000).load(used.state())", BadRecord, "this state does not fit "
        ),
        Wrong("a state of another policy", "policy.load(ucb.state())", BadRecord, "this state does not fit CMABSM("),
        Wrong("a state without its phase", "used.load({'plays': 3})", BadRecord, "this state does not fit CMABSM("),
        Wrong(
            "more observed than planned",
            "used.load(used.state() | {'observed': {'rows': [0], 'count': [10**6], 'total': [0.0], 'squares': [0.0]}})",
            BadRecord,
            "this state does not fit CMABSM(",
        ),
    ],
    "Problems": [
        Wrong(
            "a probability above 1", "kofn.Bernoulli([0.2, 1.2])", BadInput, "p must be probabilities from 0 to 1; p[1"
        ),
        Wrong(
            "no arms", "kofn.Bernoulli([])", BadInput, "p must be a list of at least one number; got an array of shape"
        ),
        Wrong("arms as text", "kofn.Bernoulli('0.5')", BadInput, "p must be a list of at least one number"),
        Wrong(
            "a scale of 0", "kofn.ArctanExponential([1, 0])", BadInput, "scale must be means of exponentials, above 0"
        ),
        Wrong(
            "unequal lengths", "kofn.Beta([1, 2], [1, 2, 3])", BadInput, "a and b must have one number per arm; got 2 "
        ),
        Wrong(
            "an empty sample",
            "kofn.Empirical([[0.1], []])",
            BadInput,
            "samples[1] must be a list of at least one number",
        ),
        Wrong(
            "more than always",
            "problems.Correlated([0.2, 0.7], together=2)",
            BadInput,
            "together must be a fraction of the plays, from 0 to 1, not 2",
        ),
        Wrong("no Arms", "kofn.Problem([0.1, 0.5], 'mean', 1)", BadInput, "arms must be Arms, for instance "),
        Wrong(
            "all arms", "kofn.Problem(arms, 'mean', k=6)", BadInput, "k must be less than n_arms; got k=6 and n_arms=6"
        ),
        Wrong(
            "unknown reward", "kofn.Problem(arms, 'median', 2)", BadInput, "there is no reward 'median'; the names are"
        ),
        Wrong(
            "a number as reward", "kofn.Problem(arms, 1.0, 2)", BadInput, "reward must be a function of an array whose"
        ),
        Wrong(
            "a reward of the wrong shape",
            "kofn.Problem(arms, np.mean, 2)",
            BadInput,
            "a reward takes an array whose last axis is K=2 and returns one number per play, but ",
        ),
        Wrong(
            "a reward that fails",
            "kofn.Problem(arms, lambda x: x[..., 2], 2)",
            BadInput,
            "a reward takes an array whose last axis is K=2 and returns one number per play, but ",
        ),
        Wrong("no function", "rewards.utility(2)", BadInput, "fn must be a function of the sum, for instance np.sqrt"),
        Wrong("a subset too large", "problem.value([(0, 1, 2)])", BadInput, "a subset has 2 arms; got rows of 3"),
        Wrong(
            "an arm too many", "problem.value([(0, 6)])", BadInput, "arms are numbered from 0 to 5; got row 0: (0, 6)"
        ),
        Wrong(
            "half a play",
            "problem.play([(0, 1)], [0.5], 1)",
            BadInput,
            "times must be whole numbers of plays; got float64",
        ),
        Wrong("times that do not fit", "problem.play([(0, 1)], [1, 2], 1)", BadInput, "times must have one number per"),
        Wrong(
            "not the best",
            "kofn.Problem(arms, 'mean', 2, best=(0, 1)).gap([(4, 5)])",
            BadInput,
            "best=(0, 1) was given, but (4, 5) is better by 0.65: give the best subset",
        ),
    ],
    "Problems from applications": [
        Wrong(
            "an edge that is none",
            "problems.Graph([(1, 2, 3, 4)])",
            BadInput,
            "an edge must be (from, to) or (from, to",
        ),
        Wrong(
            "edges without probabilities",
            "problems.Influence(problems.Graph.karate(), 5)",
            BadInput,
            "the edges of this graph have no weights: give probability=0.1 or probability=",
        ),
        Wrong(
            "weights above 1",
            "problems.Influence(problems.Graph.karate(), 5, model='threshold', probability=0.5)",
            BadInput,
            "in the threshold model, the weights of the edges into a node must add up to at most 1;",
        ),
        Wrong(
            "a latency without end",
            "problems.Pareto([10, 20], 2.0, timeout=float('inf'))",
            BadInput,
            "timeout must be a finite number above 0, not inf",
        ),
        Wrong(
            "a matrix that does not fit",
            "problems.Interactions(arms, np.ones((4, 4)), 2)",
            BadInput,
            "weights must be a symmetric 6 x 6 matrix of finite numbers; got shape (4, 4)",
        ),
        Wrong(
            "no user",
            "problems.Recommendations([0.1, 0.2, 0.3], 2)",
            BadInput,
            "give either patience=0.8, or examine=[...]",
        ),
        Wrong(
            "a subset that was never logged",
            "logs.evaluate(logs.DecisionLog.simulate(problem, 3, seed=1), (0, 1))",
            BadInput,
            "the log has no play of (0, 1); an estimate with an error needs two. An additive",
        ),
        Wrong(
            "a policy that does not fit the log",
            "kofn.replay(kofn.Thompson(7, 2), logs.DecisionLog.simulate(problem, 100, seed=1))",
            BadInput,
            "the policy has n_arms=7, but the log has n_arms=6: make them equal",
        ),
    ],
    "Simulation and regret": [
        Wrong(
            "no plays", "kofn.simulate(policy, problem, 0)", BadInput, "horizon must be a whole number of at least 1"
        ),
        Wrong("no policy", "kofn.simulate('cmab-sm', problem, 10)", BadInput, "policy must be a Policy, for instance "),
        Wrong("no problem", "kofn.simulate(policy, arms, 10)", BadInput, "problem must be a problem, for instance "),
        Wrong(
            "another number of arms",
            "kofn.simulate(kofn.CMABSM(7, 2, 1_000_000), problem, 10)",
            BadInput,
            "the policy has n_arms=7, but the problem has n_arms=6",
        ),
        Wrong(
            "another direction",
            "kofn.simulate(latency, problem, 10)",
            BadInput,
            "the policy has direction='minimize', but the problem has direction='maximize'",
        ),
        Wrong(
            "a policy that has played",
            "kofn.simulate(used, problem, 10)",
            BadInput,
            "the policy has already observed 1 plays: simulate a new one",
        ),
        Wrong(
            "a wrong seed",
            "kofn.simulate(policy, problem, 10, seed='1')",
            BadInput,
            "seed must be an int, a SeedSequence",
        ),
        Wrong(
            "one policy for many runs",
            "kofn.simulate_many(policy, problem, 10, runs=3)",
            BadInput,
            "policy must be a function of a seed, as lambda seed: ",
        ),
        Wrong(
            "no runs",
            "kofn.simulate_many(lambda seed: kofn.CMABSM(6, 2, 1_000_000), problem, 10, runs=0)",
            BadInput,
            "runs must be a whole number of at least 1, not 0",
        ),
        Wrong(
            "no workers",
            "kofn.simulate_many(lambda seed: kofn.CMABSM(6, 2, 1_000_000), problem, 10, runs=2, workers=0)",
            BadInput,
            "workers must be a whole number of at least 1, not 0",
        ),
        Wrong(
            "past the end", "run.regret_at(2_000_000)", BadInput, "plays must be from 0 to 1,000,000, the length of the"
        ),
        Wrong("a band of nothing", "kofn.Band.over([])", BadInput, "a band needs at least one curve"),
        Wrong(
            "95 %",
            "kofn.Band.over([run.curve], level=95)",
            BadInput,
            "level must be a probability such as 0.95, not 95",
        ),
    ],
    "Choosing": [
        Wrong(
            "as many as there are",
            "kofn.choose(['a', 'b', 'c'], 3, len)",
            BadInput,
            "k must be less than the number of candidates; got k=3 and 3 candidates",
        ),
        Wrong("one text", "kofn.choose('abc', 2, len)", BadInput, "candidates must be a list of things to choose from"),
        Wrong("no function", "kofn.choose(6, 2, 0.5)", BadInput, "score must be a function of a list of candidates"),
        Wrong("no budget", "kofn.choose(6, 2, len, budget=0)", BadInput, "budget must be a whole number of at least 1"),
        Wrong("no time", "kofn.choose(6, 2, len, seconds=0)", BadInput, "seconds must be a number above 0, not 0"),
        Wrong(
            "a rule about no candidate",
            "kofn.choose(['a', 'b', 'c'], 2, len, constraints=[{'rule': 'never', 'arms': ['d']}])",
            BadInput,
            "a rule names 'd', but no candidate has that text",
        ),
        Wrong(
            "a policy with fixed plans",
            "kofn.choose(6, 2, len, policy='dart')",
            BadInput,
            "policy must be one that learns from plays of any subset, such as thompson, not 'dart'",
        ),
        Wrong(
            "a backend of simulations",
            "kofn.choose(6, 2, len, backend='local')",
            BadInput,
            "backend must be 'threads', 'processes', 'dask', ",
        ),
        Wrong(
            "a score that is text",
            "kofn.choose(['a', 'b', 'c'], 2, lambda subset: '0.5', seed=1)",
            BadScore,
            "score(['a', 'b']) returned '0.5'; a score must be one finite number",
        ),
        Wrong(
            "a score that fails",
            "kofn.choose(['a', 'b', 'c'], 2, lambda subset: 1 / 0, seed=1)",
            BadScore,
            "score(['a', 'b']) raised ZeroDivisionError: division by zero",
        ),
        Wrong(
            "a score outside of its range",
            "kofn.choose(3, 2, len, reward_range=(0, 1), seed=1)",
            BadScore,
            "score([0, 1]) returned 2, outside of reward_range=(0.0, 1.0): give a wider one, or none",
        ),
    ],
    "Comparing": [
        Wrong(
            "one policy, not a list",
            "kofn.compare('dart', problem)",
            BadInput,
            "policies must be a list of names, such as ['cmab-sm', 'dart']; got 'dart'",
        ),
        Wrong("nobody", "kofn.compare([], problem)", BadInput, "no policy can play this problem: no policy was given"),
        Wrong(
            "unknown policy",
            "kofn.compare(['dart-2'], problem)",
            BadInput,
            "there is no policy 'dart-2': did you mean 'dart'? ",
        ),
        Wrong(
            "a policy that has been made",
            "kofn.compare({'mine': policy}, problem)",
            BadInput,
            "a policy must be a name, (name, parameters), or a function that makes a policy from a seed; got CMABSM(",
        ),
        Wrong(
            "unknown parameter",
            "kofn.compare({'mine': ('cmab-sm', {'epsilon': 0.1})}, problem, 1000)",
            BadInput,
            "cmab-sm does not take epsilon; it takes: constraints, direction, horizon, resolution, reward_range",
        ),
        Wrong(
            "no problem",
            "kofn.compare(['dart'], 'max')",
            BadInput,
            "a problem must be a Problem, a Setting, or a function that makes one from a seed; got 'max'",
        ),
        Wrong(
            "a policy that cannot play it",
            "kofn.compare(['etcg'], problem, 1000)",
            BadInput,
            "etcg plays fewer than K arms, and this problem does not define what they earn: give what an empty place",
        ),
        Wrong("no runs", "kofn.compare(['dart'], problem, 1000, runs=0)", BadInput, "runs must be a whole number of"),
        Wrong(
            "unknown backend",
            "kofn.compare(['dart'], problem, 1000, backend='spark')",
            BadInput,
            "backend must be 'local', 'dask', the address of a cluster such as 'dask:tcp://10.0.0.1:8786', or a "
            "distributed.Client, not 'spark'",
        ),
        Wrong(
            "workers for a cluster that has its own",
            "kofn.compare(['dart'], problem, 1000, backend='dask:tcp://10.0.0.1:8786', workers=2)",
            BadInput,
            "a running cluster has its own workers: leave out workers=2",
        ),
        Wrong(
            "an archive that is no folder",
            "kofn.compare(['dart'], problem, 1000, archive=7)",
            BadInput,
            "archive must be a folder, such as 'sweep'; got 7",
        ),
    ],
    "Theory": [
        Wrong(
            "all arms",
            "theory.learning_budget(30, 30, 1000)",
            BadInput,
            "k must be less than n_arms; got k=30 and n_arms=30",
        ),
        Wrong(
            "U below 1", "theory.regret_bound(30, 5, 1000, 0.5)", BadInput, "lipschitz must be from 1 to 1e9; got 0.5"
        ),
        Wrong(
            "a resolution of 0",
            "theory.learning_budget(30, 5, 1000, resolution=0)",
            BadInput,
            "resolution must be at least 1e-30",
        ),
        Wrong(
            "past counting", "theory.resolution(30, 10**101)", BadInput, "horizon must be at most 1e100 plays; got more"
        ),
        Wrong("no time", "theory.time_to_try_all(30, 15, 0)", BadInput, "plays_per_second must be above 0; got 0"),
        Wrong(
            "no doubling",
            "theory.doubling_loss(base=1)",
            BadInput,
            "doubling needs 0 < gamma < 1, delta >= 0, first >=",
        ),
        Wrong(
            "more than all",
            "theory.affordable_resolution(30, 5, 1000, 2)",
            BadInput,
            "share must be above 0 and at most 1",
        ),
    ],
}

COMMANDS = [
    WrongCommand("unknown command", "figures", "No such command 'figures'."),
    WrongCommand("no log", "replay nowhere.csv", "nowhere.csv: No such file or directory"),
    WrongCommand("no such problem size", "run --problem karate", "the karate club has 34 people, so n_arms must be"),
    WrongCommand("unknown option", "run --steps 5", "No such option '--steps'."),
    WrongCommand("missing option", "budget --arms 30", "Missing option '--k'."),
    WrongCommand("missing value", "budget --arms", "Option '--arms' requires an argument."),
    WrongCommand("too many arguments", "run cmab-sm dart", "Got unexpected extra argument (dart)"),
    WrongCommand(
        "not a number", "run --horizon soon", "Invalid value for '--horizon': 'soon' is not a whole number of"
    ),
    WrongCommand(
        "a decimal comma", "run --arms 2,5", "Invalid value for '--arms': '2,5' is not a whole number of at least"
    ),
    WrongCommand(
        "half a play", "run --horizon 2.5", "Invalid value for '--horizon': '2.5' is not a whole number of at"
    ),
    WrongCommand(
        "no plays", "run --horizon 0", "Invalid value for '--horizon': '0' is not a whole number of at least 1"
    ),
    WrongCommand(
        "negative seed", "run --seed -1", "Invalid value for '--seed': '-1' is not a whole number of at least"
    ),
    WrongCommand(
        "unknown policy", "run dart-2", "there is no policy 'dart-2': did you mean 'dart'? Available: case, cmab-sm, "
    ),
    WrongCommand(
        "unknown problem", "run --problem median", "there is no problem 'median': did you mean 'mean'? Available"
    ),
    WrongCommand("all arms", "run --arms 5 --k 5", "k must be less than n_arms; got k=5 and n_arms=5"),
    WrongCommand(
        "no value", "run --set resolution", "--set takes NAME=VALUE, such as resolution=0.05; got 'resolution'"
    ),
    WrongCommand(
        "an attribute without a value",
        "campaign decide front --context phone",
        "--context takes NAME=VALUE, such as device=phone; got 'phone'",
    ),
    WrongCommand(
        "unknown parameter",
        "run cmab-sm --set epsilon=0.1",
        "cmab-sm does not take epsilon; it takes: constraints, direction, horizon",
    ),
    WrongCommand(
        "a parameter by the wrong way", "run --set k=3", "--set is for the policy's own parameters: use --k for k"
    ),
    WrongCommand(
        "a wrong parameter", "run cmab-sm --set resolution=fine", "resolution must be a finite number; got 'fine'"
    ),
    WrongCommand(
        "another direction", "run --set direction=minimize", "the policy has direction='minimize', but the problem"
    ),
    WrongCommand("too many subsets", "run improved-ucb --arms 100 --k 50", "50 of 100 arms make "),
    WrongCommand("a folder for a file", "run --out .", "a picture needs a file name, such as run; got the folder '.'"),
    WrongCommand(
        "unknown figure", "paper max-45", "the paper has no figure 'max-45'; it has: cross-selling-12, cross-"
    ),
    WrongCommand(
        "no runs", "paper max-12 --runs 0", "Invalid value for '--runs': '0' is not a whole number of at least"
    ),
    WrongCommand("no workers", "paper max-12 --workers 0", "Invalid value for '--workers': '0' is not a whole number"),
    WrongCommand("a file for a folder", "paper max-12 --out taken", "Invalid value for '--out': Directory 'taken' is"),
    WrongCommand(
        "nothing to choose", "budget --arms 3 --k 3 --horizon 10", "k must be less than n_arms; got k=3 and n"
    ),
    WrongCommand(
        "too coarse", "budget --arms 9 --k 3 --horizon 10 --resolution 2", "resolution must be at least 1e-30"
    ),
    WrongCommand(
        "too long",
        "budget --arms 9 --k 3 --horizon 1e99",
        "Invalid value for '--horizon': '1e99' is too large: the maximum is",
    ),
    WrongCommand(
        "unknown policy to compare",
        "compare dart-2",
        "there is no policy 'dart-2': did you mean 'dart'? Available: case, cmab-sm, ",
    ),
    WrongCommand(
        "unknown problem to compare on",
        "compare dart --problem median",
        "there is no problem 'median': did you mean 'mean'?",
    ),
    WrongCommand("no such program", "compare dart --problem shop.py", "there is no file shop.py"),
    WrongCommand(
        "a policy that cannot play", "compare dart etcg --problem min", "etcg plays fewer than K arms, and this problem"
    ),
    WrongCommand(
        "a folder for a picture", "compare dart --out .", "a picture needs a file name, such as run; got the "
    ),
    WrongCommand(
        "unknown setting",
        "suite --settings median",
        "there is no setting 'median': did you mean 'mean'? Available: mean",
    ),
    WrongCommand(
        "unknown policy in the suite",
        "suite --settings rare --policy dart-2",
        "there is no policy 'dart-2': did you mean 'dart'?",
    ),
    WrongCommand(
        "unknown version",
        "suite --settings rare --against 0.0.8",
        "suite has no results of version '0.0.8'; it has: none",
    ),
    WrongCommand("unknown shell", "completion tcsh", "Invalid value for '{bash|zsh|fish}': 'tcsh' is not one of 'bash"),
]


def prepared() -> dict[str, Any]:
    """Return new objects for a call."""
    names: dict[str, Any] = {}
    exec(SETUP, names)
    return names


def refusal(wrong: Wrong, names: dict[str, Any]) -> Exception:
    """Return the error that the call raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eval(wrong.call, names)
        except Exception as error:
            return error
    raise AssertionError(f"{wrong.call} was accepted")


@dataclass(frozen=True)
class Output:
    """The result of a command: exit code, output, and the files in its folder."""

    code: object
    stdout: str
    stderr: str
    files: list[str]


def command(argv: str) -> Output:
    """Run `kofn ARGV` in this process, in a folder with one file called `taken`."""
    from kofn.cli import main

    out, err = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), mock.patch.object(sys, "argv", ["kofn"]):
        Path("taken").touch()
        sys.argv += shlex.split(argv)
        code: object = None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("default")
            try:
                main()
            except SystemExit as end:
                code = end.code
        files = sorted(each.name for each in Path().iterdir())
        return Output(code, out.getvalue(), _as_new_click_says(err.getvalue()), files)


def _as_new_click_says(text: str) -> str:
    """Return the text with the words that newer versions of click have for an unknown option."""

    def renamed(found: re.Match[str]) -> str:
        option, *similar = re.findall(r"--[\w-]+", found[0])
        meant = ", ".join(map(repr, similar))
        one = " one of:" if len(similar) > 1 else ""
        return f"No such option {option!r}." + (f" (Did you mean{one} {meant}?)" if similar else "")

    text = re.sub(r"No such option: --[\w-]+ \(Possible options: [^)]*\)", renamed, text)
    return re.sub(r"No such option: --[\w-]+ Did you mean --[\w-]+\?", renamed, text)


def markdown() -> str:
    """Return the page with all calls and messages."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    calls = sum(map(len, SECTIONS.values()))
    yield from (
        "# The error messages",
        "",
        "<!-- Written by `python -m tests.bad_input > docs/reference/errors.md`; a test compares. -->",
        "",
        f"{calls} wrong calls and {len(COMMANDS)} wrong commands, each with its message. Every error is a",
        "`kofn.KofnError`, and a refused call changes nothing. The calls are made after",
        "",
        "```python",
        SETUP.rstrip(),
        "```",
        "",
    )
    for title, wrongs in SECTIONS.items():
        yield from (f"## {title}", "", "| | call | error | message |", "| --- | --- | --- | --- |")
        for wrong in wrongs:
            error = refusal(wrong, prepared())
            yield f"| {wrong.name} | {_code(wrong.call)} | `{type(error).__name__}` | {_code(str(error))} |"
        yield ""
    yield from (
        "## The command line",
        "",
        "Each prints one line on stderr and nothing on stdout, writes no file, and exits with code 2.",
        "",
        "| | command | message |",
        "| --- | --- | --- |",
    )
    for each in COMMANDS:
        yield f"| {each.name} | {_code(f'kofn {each.argv}')} | {_code(command(each.argv).stderr.strip())} |"
    yield ""


def _code(text: str) -> str:
    bars = text.replace("|", "\\|")
    return f"`{bars}`"


if __name__ == "__main__":
    sys.stdout.write(markdown())
