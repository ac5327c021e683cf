"""Every tutorial is a notebook that runs. The test that executes them needs the built site (`make site`)."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from docs.site.notebooks import notebook
from docs.site.tutorial_pages import Command, Picture, pages, steps
from tests.page_blocks import agree

SITE = Path(__file__).parent.parent / "site"
PAGE = """\
# Title

See [there](../other.md#part) and [a site](https://example.org/).

## Part

Some text. Save this as `one.py`:

```python
print(1)
```

Run it:

```console
$ python one.py
1
$ maillard evaluate one.db --target '$x' \\
    --finished
...
```

![A curve](../pictures/tutorial-curve.png)

A module, `two.py`:

```python
x = 1
```

And its user, `three.py`:

```python
from two import x
```

```console
$ python three.py
```
"""


def test_a_page_becomes_a_notebook() -> None:
    made = nbformat.reads(notebook(PAGE), as_version=4)
    nbformat.validate(made)
    cells = made.cells
    assert cells[0].source.startswith("# Title\n\nThis notebook")
    assert "os.chdir" in cells[1].source
    assert [cell.source for cell in cells[2:]] == [
        "See there and [a site](https://example.org/).",
        "## Part\n\nSome text.",
        "Run it:",
        "print(1)",
        "!maillard evaluate one.db --target '$$x'     --finished",
        "from IPython.display import Image\n\nImage('curve.png', alt='A curve')",
        "A module, `two.py`:",
        "%%writefile two.py\nx = 1",
        "And its user, `three.py`:",
        "from two import x",
    ]
    assert notebook(PAGE) == notebook(PAGE)


def test_a_program_that_runs_twice_or_with_arguments_is_a_file_of_the_notebook() -> None:
    page = "# T\n\nThe file `a.py`:\n\n```python\nx = 1\n```\n\n```console\n$ python a.py --fast\n```\n"
    assert [cell.source for cell in nbformat.reads(notebook(page), as_version=4).cells[3:]] == [
        "%%writefile a.py\nx = 1",
        "%run a.py --fast",
    ]


@pytest.mark.parametrize(
    ("page", "message"),
    [
        ("# T\n\nSave this:\n\n```python\nx = 1\n```\n", "must name one file"),
        ("# T\n\n![a](../pictures/audit.png)\n", r"audit.png: the name of a picture"),
    ],
)
def test_a_page_without_the_conventions_is_refused(page: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(steps(page))


@pytest.mark.site
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_the_notebook_of_a_tutorial_runs(page: Path, tmp_path, monkeypatch) -> None:
    """It prints what the page shows, and shows the pictures."""
    from nbclient import NotebookClient

    (path,) = SITE.glob(f"_downloads/*/{page.stem}.ipynb")
    made = nbformat.read(path, as_version=4)
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for the folder that the notebook makes
    NotebookClient(made, timeout=300).execute(cwd=str(tmp_path))
    expected = [
        step for step in steps(page.read_text(encoding="utf8")) if isinstance(step, Command | Picture)
    ]
    ran = [cell for cell in made.cells[2:] if cell.cell_type == "code" and cell.source[:11] != "%%writefile"]
    for step, cell in zip(expected, ran, strict=True):
        if isinstance(step, Picture):
            assert "image/png" in cell.outputs[-1]["data"]
        else:
            printed = "".join(each["text"] for each in cell.outputs if each.output_type == "stream")
            assert agree(printed, step.shown), f"{step.line} prints:\n{printed}"
