"""Makes tables for C++ of the policies in this folder: `python3 compile.py FOLDER OUTPUT NAME...` (meson runs it).

A line of a policy is `CALL: ACTION`, `CALL: ACTION if argN [& MASK] == VALUE`, `... in FIRST..LAST`, `default: ACTION`
or `include NAME`. The first line that fits a call decides. Actions: allow, never (what it does is the loader's choice)
or the name of an errno. Values are numbers, C's names or OWN_PID. A comment begins with #."""
import pathlib
import re
import sys

LINE = re.compile(r"(?P<call>\w+): (?P<action>\w+)(?: if arg(?P<argument>[0-5])(?: & (?P<mask>\S+))? "
                  r"(?:== (?P<value>\S+)|in (?P<first>\w+)\.\.(?P<last>\w+)))?")
# Calls of x86 that newer architectures never had.
OF_X86 = set("""access arch_prctl dup2 epoll_wait getrlimit gettimeofday ioperm iopl kexec_file_load lstat mkdir mknod
modify_ldt open pipe poll readlink rename renameat stat time unlink""".split())


class Mistake(Exception):
    pass


def _action(name: str) -> str:
    if name == "allow":
        return "Action::kAllow, 0"
    if name == "never":
        return "Action::kNever, 0"
    if re.fullmatch(r"E[A-Z]+", name):
        return f"Action::kRefuse, {name}"
    raise Mistake(f"'{name}' is no action")


def _rule(match: re.Match) -> str:
    action = _action(match["action"])
    if match["argument"] is None:
        return f"{{SYS_{match['call']}, {action}, Test::kNone, 0, 0, 0, 0}}"
    mask = f"static_cast<uint32_t>({match['mask']})" if match["mask"] else "~0u"
    if match["first"]:
        test, low, high = "kRange", match["first"], match["last"]
    elif match["value"] == "OWN_PID":
        test, low, high = "kOwnPid", "0", "0"
    else:
        test, low, high = "kRange", match["value"], match["value"]
    bounds = f"static_cast<uint32_t>({low}), static_cast<uint32_t>({high})"
    return f"{{SYS_{match['call']}, {action}, Test::{test}, {match['argument']}, {mask}, {bounds}}}"


def compile_policy(folder: pathlib.Path, name: str) -> list[str]:
    """Lines of a C++ array."""
    lines = []
    for number, whole in enumerate((folder / f"{name}.policy").read_text().splitlines(), 1):
        text = whole.partition("#")[0].strip()
        if not text:
            continue
        if text.startswith("include "):
            lines += compile_policy(folder, text.split()[1])
            continue
        match = LINE.fullmatch(text)
        try:
            if not match:
                raise Mistake(f"'{text}' is not understood")
            if match["call"] == "default":
                lines.append(f"    {{kDefault, {_action(match['action'])}, Test::kNone, 0, 0, 0, 0}},")
                continue
            rule = f"    {_rule(match)},"
        except Mistake as mistake:
            raise SystemExit(f"{name}.policy:{number}: {mistake}") from None
        lines += ["#if defined(__x86_64__)", rule, "#endif"] if match["call"] in OF_X86 else [rule]
    return lines


def main() -> None:
    folder, output, names = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
    text = ""
    for name in names:
        constant = "k" + "".join(part.capitalize() for part in name.split("_"))
        text += "\n".join([f"constexpr Rule {constant}[] = {{", *compile_policy(folder, name), "};", "", ""])
    output.write_text(text)


if __name__ == "__main__":
    main()
