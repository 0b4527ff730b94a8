"""A cpio archive (format newc) as Linux unpacks it at boot, written here because not every machine has cpio."""
import pathlib
import stat


class Archive:
    """Entries by name, in the order they were added; folders on the way are made. Links and files may be replaced."""

    def __init__(self):
        self._entries: dict[str, tuple[int, bytes]] = {}

    def folder(self, name: str) -> None:
        parts = name.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            self._entries.setdefault("/".join(parts[:depth]), (stat.S_IFDIR | 0o755, b""))

    def file(self, name: str, content: bytes, mode: int = 0o644) -> None:
        self._put(name, stat.S_IFREG | mode, content)

    def link(self, name: str, target: str) -> None:
        self._put(name, stat.S_IFLNK | 0o777, target.encode())

    def _put(self, name: str, mode: int, content: bytes) -> None:
        if "/" in name:
            self.folder(name.rpartition("/")[0])
        self._entries[name] = (mode, content)

    def write(self, target: pathlib.Path) -> None:
        temporary = target.with_name(target.name + ".new")
        with open(temporary, "wb") as out:
            for inode, (name, (mode, content)) in enumerate(self._entries.items(), 1):
                out.write(_record(inode, mode, name, content))
            out.write(_record(0, 0, "TRAILER!!!", b""))
            out.write(bytes(-out.tell() % 512))
        temporary.rename(target)


def _record(inode: int, mode: int, name: str, content: bytes) -> bytes:
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = [inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
    head = b"070701" + "".join(f"{field:08X}" for field in fields).encode() + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)
