"""The table behind the source ``bikes``: rentals of a bicycle shop with five branches, drawn with a fixed seed.

It is invented, so that it can be shipped, and has what ordinary tables have: words, dates, blanks, yes and no, a column
that numbers the rows, and rows whose target is unknown.
"""

from __future__ import annotations

import csv
import datetime
import io
import math
from collections.abc import Iterator

from isthmus.core.draws import numpy_generator

COLUMNS = ("id", "date", "branch", "weather", "temperature", "wind", "holiday", "rentals")
BRANCHES = {
    "station": (62, 0.45),
    "harbour": (48, 1.7),
    "university": (40, 0.6),
    "park": (30, 2.3),
    "old town": (35, 1.2),
}
"""Rentals of a good working day, and the factor on a free day."""
WEATHER = {"sunny": 1.0, "cloudy": 0.85, "rain": 0.4, "snow": 0.15}
HOLIDAYS = {(1, 1), (4, 7), (5, 1), (6, 8), (8, 15), (10, 3), (12, 25), (12, 26)}
FIRST_DAY, DAYS, PER_DAY = datetime.date(2023, 1, 1), 600, 2


def bikes_csv() -> str:
    """The table as the text of a csv file, the same on every call."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows())
    return text.getvalue()


def _rows() -> Iterator[tuple[object, ...]]:
    generator, number = numpy_generator(0, "bikes"), 0
    for day in range(DAYS):
        date = FIRST_DAY + datetime.timedelta(days=day)
        season = -math.cos(2 * math.pi * (date.timetuple().tm_yday - 20) / 365)  # coldest on 20 January
        temperature = 10.5 + 10 * season + 6 * (generator.random() - 0.5)
        sky, wind = generator.random(), 3 + 25 * generator.random() ** 2
        wet = "snow" if temperature < 1 else "rain"
        weather = "sunny" if sky < 0.3 + 0.15 * season else "cloudy" if sky < 0.72 else wet
        is_holiday = (date.month, date.day) in HOLIDAYS
        names = list(BRANCHES)
        for _ in range(PER_DAY):
            number += 1
            branch = names.pop(int(generator.random() * len(names)))
            usual, free_day = BRANCHES[branch]
            comfort = math.exp(-(((temperature - 22) / 13) ** 2))
            mean = usual * (free_day if is_holiday or date.weekday() >= 5 else 1) * WEATHER[weather]
            mean *= (0.15 + comfort) * (1 - 0.015 * wind) * (1 + 0.2 * day / DAYS)
            noise = math.sqrt(mean) * 3.4 * (generator.random() + generator.random() - 1)  # a triangle, about Poisson's
            rentals = max(0, round(mean + noise))
            blank = generator.random(3)
            yield (
                number,
                date.isoformat(),
                branch,
                "" if blank[0] < 0.06 else weather,
                "" if blank[1] < 0.08 else f"{temperature:.1f}",
                f"{wind:.0f}",
                "yes" if is_holiday else "no",
                "" if blank[2] < 0.01 else rentals,
            )
