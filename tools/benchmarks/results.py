"""What benchmarks make of their results: tables, and an exit status that says whether all reached what is wanted."""
import json
import sys
from collections.abc import Sequence


def json_lines(output: str) -> list[dict]:
    """What a program reported, a line of JSON for each result, among what else it printed."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def columns(rows: Sequence[tuple]) -> list[str]:
    """Lines of a table whose first row is its head."""
    cells = [tuple(str(cell) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def reaches(value: float, wanted: str) -> bool:
    """`wanted`: "<= 2" or ">= 97"."""
    relation, limit = wanted.split()
    return value <= float(limit) if relation == "<=" else value >= float(limit)


def exit_status(missed: list[str]) -> int:
    """1 if something fell short of what is wanted or failed, and says what; standard output may be JSON alone."""
    for what in missed:
        print(f"short of what is wanted: {what}", file=sys.stderr)
    return 1 if missed else 0
