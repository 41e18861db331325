"""`python -m docs.generator` writes every generated page below docs/."""

from __future__ import annotations

from pathlib import Path

from docs.generator import PAGES

DOCS = Path(__file__).resolve().parents[1]


def main() -> None:
    """Write all pages, and say which have changed."""
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/{name}")


if __name__ == "__main__":
    main()
