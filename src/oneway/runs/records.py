"""Readers for the JSON files of a run folder, with validation: errors name the file and the key.

A folder may come from anyone, and its files may be damaged. After reading, every value can be relied on.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import from_json

from oneway.common.errors import UserError
from oneway.common.links import refuse_link
from oneway.data.dataset import PoolRecord, class_name
from oneway.data.splits import DIGITS, Split
from oneway.runs.reading import is_there, read_whole

MOST_BYTES = 2**26
"""The most bytes of a text file in a run folder."""

MOST_LOSSES = 100
"""The most names of logged values in a run: each gets a plot."""

LARGEST = 3.5e38
"""The largest logged number: about the largest finite float32."""


Count = Annotated[int, Field(ge=0, le=2**53)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
ClassName = Annotated[str, AfterValidator(class_name)]


class _Record(BaseModel):
    """A JSON object. Unknown keys are ignored: later versions may write more."""

    model_config = ConfigDict(strict=True, frozen=True)


class Summary(_Record):
    """`summary.json`: the result of a run that has ended."""

    method: str
    variant: str
    seed: Count
    labels: Count
    iterations: Count
    metric: Literal["miou", "accuracy"]
    value: Percent | None
    """None where no image validates."""

    interval: Annotated[list[Percent], Field(min_length=2, max_length=2)] | None = None
    """Where 95 % of the values lie that other validation images would give."""

    per_class: dict[ClassName, Percent | None] = Field(min_length=1, max_length=255)
    absent: list[str]
    confusion: list[list[Count]]
    validation_samples: Count
    skipped_steps: Count = 0
    changes: list[str] = []
    about_images: list[str] = []
    """What the review of the images said before the run was trained."""

    seconds: Duration
    peak_memory_mib: Duration

    @model_validator(mode="after")
    def _fits_together(self) -> Summary:
        classes = len(self.per_class)
        if unknown := [name for name in self.absent if name not in self.per_class]:
            raise ValueError(f"absent names {unknown[0]!r:.100}, and per_class does not")
        if self.value is None and self.validation_samples:
            raise ValueError(f"value is missing, though {self.validation_samples} images validate")
        if [len(row) for row in self.confusion] != [classes] * classes:
            raise ValueError(f"confusion has not {classes} rows of {classes} numbers, one for each of per_class")
        return self


class ImageCounts(_Record):
    """A line of `validation.jsonl`: pixels of an image, for each class."""

    image: str
    group: str | None = None
    """Which other images it belongs to, where that is known."""

    hits: list[Count]
    """Those that are right."""

    labelled: list[Count]
    predicted: list[Count]

    @model_validator(mode="after")
    def _fits_together(self) -> ImageCounts:
        for hits, labelled, predicted in zip(self.hits, self.labelled, self.predicted, strict=True):
            if hits > min(labelled, predicted):
                raise ValueError(f"{hits} hits of {labelled} pixels labelled and {predicted} predicted")
        return self


class Environment(_Record):
    """`environment.json`: the software and hardware that a run's numbers come from."""

    command: str
    started: str
    versions: dict[str, str]
    python: str
    platform: str
    hardware: str
    commit: str | None
    uncommitted: bool | None = None
    code: dict[str, str] = {}


class MetricsLine(_Record):
    """A line of `metrics.jsonl`: either losses and learning rate, or a validation."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number]

    iteration: Count
    skipped: Count = 0
    per_class: list[Percent | None] = []


class _Pool(_Record):
    images: Count
    digest: str


class _Split(_Record):
    hash: str
    labelled: list[str] = Field(min_length=1)
    unlabelled: list[str]
    content: str
    validation: str
    validating: list[str] = []
    digests: list[Annotated[str, Field(pattern=rf"^([0-9a-f]{{{DIGITS}}})?$")]] = []
    began_with: list[Annotated[str, Field(pattern=rf"^[0-9a-f]{{{DIGITS}}}$")]] = []
    pool: _Pool | None = None


class Changes(_Record):
    """`changes.json`: changes of settings since a run was started, as messages."""

    changes: list[str]


def read_split(file: Path) -> Split:
    """Read the images that a run was started with."""
    stored = _Split.model_validate(read(file, _Split))
    split = Split(
        labelled=tuple(stored.labelled),
        unlabelled=tuple(stored.unlabelled),
        content=stored.content,
        validation=stored.validation,
        validating=tuple(stored.validating),
        digests=tuple(stored.digests),
        began_with=tuple(stored.began_with),
        pool=PoolRecord(stored.pool.images, stored.pool.digest) if stored.pool else None,
    )
    if split.hash != stored.hash:
        raise UserError(f"{file}: damaged; its names do not have the hash in it.")
    known = set(split.unlabelled)
    for part, names in (("labelled", split.labelled), ("unlabelled", split.unlabelled)):
        if len(set(names)) < len(names):
            raise UserError(f"{file}: damaged; {part} has a name twice.")
    if len(split.digests) not in (0, len(split.unlabelled)):
        raise UserError(f"{file}: damaged; {len(split.digests)} digests for {len(split.unlabelled)} training images.")
    if unknown := [name for name in split.labelled if name not in known]:
        raise UserError(f"{file}: damaged; labelled has {unknown[0]!r:.100}, which is not among the training images.")
    return split


def read_log(file: Path) -> list[dict[str, Any] | str]:
    """Read the lines of `metrics.jsonl`; a damaged line is replaced by the reason, a string.

    An incomplete last line is left out: it was being written when the machine stopped.
    """
    return [_parse(line, MetricsLine) for line in _read_text(file).split("\n")[:-1]] if is_there(file) else []


def read_validation(file: Path) -> list[dict[str, Any]]:
    """Read what the model of a run made of each image that validates, as `ImageCounts`."""
    lines = [_parse(line, ImageCounts) for line in _read_text(file).splitlines()]
    return refuse_damaged(lines, file)


def refuse_damaged(lines: Sequence[dict[str, Any] | str], file: Path) -> list[dict[str, Any]]:
    """The lines of a log; a UserError that names the first damaged one."""
    kept: list[dict[str, Any]] = []
    names: set[str] = set()
    for number, line in enumerate(lines, start=1):
        if isinstance(line, str):
            raise UserError(f"{file}: damaged; line {number}: {line}.")
        names |= line.keys()
        if len(names) > MOST_LOSSES:
            raise UserError(f"{file}: damaged; up to line {number} it has {len(names)} kinds of values.")
        kept.append(line)
    return kept


def read(file: Path, record: type[_Record]) -> dict[str, Any]:
    """Read the JSON object in a file; a UserError if it does not validate as the record."""
    found = _parse(_read_text(file), record)
    if isinstance(found, str):
        raise UserError(f"{file}: damaged; {found}.")
    return found


def _parse(text: str, record: type[_Record]) -> dict[str, Any] | str:
    """The JSON object in a text; or why it is none, or does not validate as the record."""
    try:
        found = from_json(text, allow_inf_nan=False)  # fails where it is nested too deeply
        json.dumps(found, allow_nan=False)  # refuses infinite numbers, such as 1e999
        record.model_validate(found)
    except ValidationError as error:
        return _explain(error)
    except ValueError as error:
        return f"not JSON ({str(error)[:200]})"
    return dict(found)


def _explain(error: ValidationError) -> str:
    """The first error of a validation, with key and value."""
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])[:200]
    reason = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if first["type"] == "missing":
        return f"it lacks {key}"
    return f"{key} is {reprlib.repr(first['input'])} ({reason[:200]})" if key else reason[:300]


def _read_text(file: Path) -> str:
    """The text of a file; bytes that are not UTF-8 become U+FFFD."""
    if not is_there(file):
        raise UserError(f"{file}: no such file.")

    def check_size(size: int) -> None:
        if size > MOST_BYTES:
            raise UserError(f"{file}: damaged; {size} bytes are too many.")

    return read_whole(refuse_link(file), check_size).decode("utf-8", errors="replace")
