"""coverage.md: which functions of the driver API are there."""


def generate(functions):
    groups: dict[str, list] = {}
    for function in functions:
        groups.setdefault(function.group, []).append(function)
    drivers = [f for f in functions if f.group != "extension"]
    done = sum(len(f.symbols) for f in drivers if f.implemented)
    total = sum(len(f.symbols) for f in drivers)
    never = sum(len(f.symbols) for f in functions if f.why.startswith(("never: ", "refused: ")))
    lines = ["# Coverage of the driver API", "",
             f"{done} of {total} exported names are implemented; the others return CUDA_ERROR_NOT_SUPPORTED and are "
             f"not found by cuGetProcAddress, but for graphics. Of those {never} have no use here, and the tables say "
             "why.", "",
             "| group | implemented | of |", "|---|---|---|"]
    for group, members in groups.items():
        lines.append(f"| {group} | {sum(f.implemented for f in members)} | {len(members)} |")
    for group, members in groups.items():
        lines += ["", f"## {group}", "", "| function | per-thread variant | implemented |", "|---|---|---|"]
        lines += [f"| {f.symbol} | {f.suffix or '-'} | {f.by or 'no, ' + f.why} |" for f in members]
    return ["\n".join(lines) + "\n"]
