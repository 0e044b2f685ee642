"""The arithmetic of scripts/bench probe finds a cost of known size under disturbances that are larger."""

import math
import os
import random
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts"))
import probe_estimate as estimate  # noqa: E402

STEP = 1.4e6  # nanoseconds


def round_of(draw, number, layout, arms):
    """Blocks of 36 steps while the clock rate wanders by 10 %, with jitter and interrupts; `arms`: what each
    adds, `layout`: what the process adds to an arm by where its memory lies."""
    row = {}
    for place, (name, more) in enumerate(arms.items()):
        drift = 1 + 0.1 * math.sin((number + place / len(arms)) / 40)
        steps = [(STEP + more) * drift * layout.get(name, 1) * draw.gauss(1, 0.02) for _ in range(36)]
        steps[draw.randrange(36)] += draw.choice((0, 3e5))
        row[name] = {"plain": steps, "wall": [2 * took for took in steps], "other": []}
    return row


def starts_of(arms, seed=0, count=6, rounds=120, spread=0.0):
    """What so many processes would have measured."""
    draw, found = random.Random(seed), []
    for _ in range(count):
        layout = {name: draw.gauss(1, spread) for name in arms}
        found.append([round_of(draw, number, layout, arms) for number in range(rounds)])
    return found


class Estimate(unittest.TestCase):
    def test_a_delay_is_found(self):
        starts = starts_of({"off": 0, "again": 0, "probe": 14e3})
        for clock in ("plain", "wall"):
            ratio, (low, high) = estimate.plain(starts, "probe", clock)
            self.assertLess(abs(ratio - 1.01), 0.001)
            self.assertTrue(low < 1.01 < high, (low, high))
            self.assertLess(high - low, 0.004)

    def test_nothing_is_found_where_there_is_nothing(self):
        ratio, (low, high) = estimate.plain(starts_of({"off": 0, "again": 0}), "again")
        self.assertLess(abs(ratio - 1), 0.001)
        self.assertTrue(low < 1 < high, (low, high))

    def test_what_differs_by_process_is_in_the_interval(self):
        """It covers the truth in 95 % of cases."""
        arms, good, wide = {"off": 0, "probe": 0}, 0, 0
        for seed in range(40):
            _, (low, high) = estimate.plain(starts_of(arms, seed, rounds=3, spread=0.01), "probe")
            good += low < 1 < high
            wide += high - low > 0.008
        self.assertGreaterEqual(good, 35)
        self.assertGreaterEqual(wide, 35)

    def test_one_start_has_an_interval_of_its_rounds(self):
        _, (low, high) = estimate.plain(starts_of({"off": 0, "again": 0}, count=1), "again")
        self.assertTrue(0.99 < low < 1 < high < 1.01, (low, high))

    def test_steps_that_show_something_are_counted_by_kind(self):
        starts = starts_of({"off": 0, "probe": 0}, rounds=50)
        for start in starts:
            for number, turn in enumerate(start):
                off = estimate.middle(turn["off"]["plain"])
                turn["probe"]["other"].append(["hands over", number, 1.2 * off])
        rows = estimate.others(starts, "probe", 1.0)
        self.assertEqual({step for _, step, _ in rows}, set(range(50)))
        (count, more), = estimate.by_kind(rows).values()
        self.assertEqual(count, 300)
        self.assertAlmostEqual(more, 0.2, places=6)
        self.assertEqual(estimate.made(starts, "probe"), 6 * 50 * 37)

    def test_blocks_without_a_plain_step_are_left_out(self):
        starts = starts_of({"off": 0, "probe": 0}, rounds=20)
        for start in starts:
            start[3]["probe"]["plain"] = []
        self.assertLess(abs(estimate.plain(starts, "probe")[0] - 1), 0.005)
        for turn in starts[0]:
            turn["probe"]["plain"] = []
        with self.assertRaisesRegex(ValueError, "probe has a start without plain steps"):
            estimate.plain(starts, "probe")


class Peaks(unittest.TestCase):
    def test_a_median_lies_between_its_ranks(self):
        """In 95 % of cases, of numbers far from normal; the ranks are no wider than they must be."""
        draw, good = random.Random(3), {7: 0, 9: 0, 20: 0}
        for count in good:
            for _ in range(400):
                _, (low, high) = estimate.median_of([draw.expovariate(1) for _ in range(count)])
                good[count] += low < math.log(2) < high
        self.assertTrue(all(0.94 * 400 <= times < 400 for times in good.values()), good)
        self.assertEqual(estimate.median_of([5, 1, 3]), (3, [1, 5]))
        self.assertEqual(estimate.median_of(range(9)), (4, [1, 7]))

    def test_what_a_probe_adds_is_told_from_what_an_allocator_moves(self):
        draw = random.Random(5)
        without = [800 + draw.uniform(-8, 8) for _ in range(60)]
        found = estimate.peaks(without, [peak + 12 + draw.uniform(-8, 8) for peak in without])
        for arm, truth in (("probe", 12), ("again", 0)):
            median, (low, high) = found[arm]
            self.assertTrue(low < truth < high and high - low < 8 and low <= median <= high, found)

    def test_one_pair_says_nothing_of_what_moves(self):
        self.assertEqual(estimate.peaks([10], [14]), {"probe": (4, [4, 4]), "again": (0, [0, 0])})


if __name__ == "__main__":
    unittest.main()
