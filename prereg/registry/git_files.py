"""`.gitattributes` and `.gitignore` of `studies/`: bytes left alone, ledgers merged line by line."""

from __future__ import annotations

from prereg.registry.disk import write_whole
from prereg.registry.paths import Root

# Without -text, version control may rewrite line ends, and every hash would differ on another machine. By merge=union a
# merge keeps the lines of both branches; the ledger's hashes say how they follow each other.
_ATTRIBUTES = (
    b"*.lock.json -text\nledger.jsonl -text merge=union\n*.yaml -text\n*.registration.md -text\n*.sig -text\n"
    b"*.tsr binary\n"
)
_IGNORED = b".ledger.lock\n.*.pending\n.*.tmp\n.ledger.jsonl.slots-*\n"
_UNION = b"ledger.jsonl merge=union\n"


def write_git_files(root: Root) -> None:
    """Write both files where they are missing. Of a user's own, every line stays; in a git work tree the line that
    merges ledgers is added where no line says how they are merged."""
    attributes, ignored = root.studies / ".gitattributes", root.studies / ".gitignore"
    if not attributes.exists():
        write_whole(attributes, _ATTRIBUTES)
    elif lacks_union(root):
        data = attributes.read_bytes()
        write_whole(attributes, data + (b"" if data.endswith(b"\n") or not data else b"\n") + _UNION)
    if not ignored.exists():
        write_whole(ignored, _IGNORED)


def lacks_union(root: Root) -> bool:
    """Whether the user's own attributes, in a git work tree, do not say how the ledger is merged."""
    attributes = root.studies / ".gitattributes"
    if not attributes.is_file() or not is_in_git(root):
        return False
    # A user's own line may say anything of merges, `merge=ours` or `-merge` too: then it is the user's decision.
    rules = (line.split() for line in attributes.read_bytes().splitlines())
    return not any(
        rule
        and rule[0] in (b"ledger.jsonl", b"/ledger.jsonl", b"*.jsonl", b"*")
        and any(word.lstrip(b"-!").split(b"=")[0] == b"merge" for word in rule[1:])
        for rule in rules
    )


def is_in_git(root: Root) -> bool:
    """Whether the root lies in a git work tree."""
    folder = root.path.resolve()
    return any((parent / ".git").exists() for parent in (folder, *folder.parents))
