"""coverage.md: which functions of the driver API are there."""


def generate(functions):
    groups: dict[str, list] = {}
    for function in functions:
        groups.setdefault(function.group, []).append(function)
    done = sum(len(f.symbols) for f in functions if f.implemented)
    total = sum(len(f.symbols) for f in functions)
    lines = ["# Coverage of the driver API", "",
             f"{done} of {total} exported names are implemented; the others return CUDA_ERROR_NOT_SUPPORTED and are "
             "not found by cuGetProcAddress.", "", "| group | implemented | of |", "|---|---|---|"]
    for group, members in groups.items():
        lines.append(f"| {group} | {sum(f.implemented for f in members)} | {len(members)} |")
    for group, members in groups.items():
        lines += ["", f"## {group}", "", "| function | per-thread variant | implemented |", "|---|---|---|"]
        lines += [f"| {f.symbol} | {f.suffix or '-'} | {f.by or 'no'} |" for f in members]
    return ["\n".join(lines) + "\n"]
