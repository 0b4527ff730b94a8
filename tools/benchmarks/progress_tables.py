"""tools/bench progress: its table and charts."""
from benchmarks import charts
from benchmarks.charts import Axis, Bars, Lines, Series
from benchmarks.progress_cases import ALONE, OURS
from benchmarks.results import columns


def _show(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def _judged(result: dict) -> str:
    if "failed" in result:
        return "FAILED"
    if "left_out" in result:
        return "left out"
    return ", ".join(f"{what}: {said}" for what, said in result.get("verdict", {}).items())


FIGURES = [("progress", "{:.3f}"), ("charged", "{:.3f}"), ("part_percent", "{:.1f}"), ("error_points_1s", "{:.2f}"),
           ("error_points_100ms", "{:.2f}"), ("p50_ms", "{:.3f}"), ("p99_ms", "{:.3f}")]


def _rows(result: dict) -> list[tuple]:
    """A row for each tenant; what is of the case stands in the first."""
    rows = [] if result["tenants"] else [(result["case"], result["sharing"], *[""] * 10, _judged(result))]
    for number, tenant in enumerate(result["tenants"]):
        head = (result["case"], result["sharing"]) if number == 0 else ("", "")
        tail = (_show(result.get("sum"), "{:.3f}"), _judged(result)) if number == 0 else ("", "")
        rows.append((*head, tenant["name"], tenant["share"], *(_show(tenant.get(name), form) for name, form in FIGURES),
                     *tail))
    return rows


def table(results: list[dict]) -> str:
    """Cases together, each with its sharings."""
    order = list(dict.fromkeys(result["case"] for result in results))
    rows: list[tuple] = [("case", "sharing", "tenant", "share", "progress", "charged", "of sum %", "err 1s",
                          "err 100ms", "p50 ms", "p99 ms", "sum", "wanted")]
    for result in sorted(results, key=lambda each: order.index(each["case"])):
        rows += _rows(result)
    lines = columns(rows)
    lines += [f"{each['case']}, {each['sharing']}: {word}: {each[key]}" for each in results
              for key, word in (("left_out", "left out"), ("failed", "FAILED")) if key in each]
    return "\n".join(lines)


def _key(*words: str) -> str:
    return "-".join(["progress", *words]).replace(" ", "-").replace(":", "-").replace("+", "-")


def _bars(case: str, mine: list[dict]) -> Bars:
    names = [f"{row['name']} ({row['share']} %)" for row in mine[0]["tenants"]]
    bars: dict[str, list[float | None]] = {
        name: [each["tenants"][number]["progress"] for each in mine] for number, name in enumerate(names)}
    return Bars(f"{case}: progress against alone on the bare driver", Axis("progress", low=0),
                [each["sharing"] for each in mine], bars)


def _over_time(result: dict) -> Lines:
    series = []
    for number, row in enumerate(result["tenants"]):
        points = [(place / 10, value) for place, value in enumerate(row["windows_100ms"])]
        series.append(Series(f"{row['name']} ({row['share']} %)", [*points, (len(points) / 10, points[-1][1])],
                             charts.COLOURS[number % len(charts.COLOURS)], stepped=True))
    return Lines(f"{result['case']}, {result['sharing']}: progress, windows of 100 ms", Axis("time, s"),
                 Axis("progress", low=0), series)


def all_charts(results: list[dict]) -> dict[str, charts.Chart]:
    """For each case what each tenant made under each sharing, and under each of ours how steadily."""
    found: dict[str, charts.Chart] = {}
    measured = [each for each in results if each["case"] != ALONE and "sum" in each]
    for case in dict.fromkeys(each["case"] for each in measured):
        found[_key(case)] = _bars(case, [each for each in measured if each["case"] == case])
    for result in measured:
        if result["sharing"] in OURS and all(row.get("windows_100ms") for row in result["tenants"]):
            found[_key(result["case"], result["sharing"])] = _over_time(result)
    return found
