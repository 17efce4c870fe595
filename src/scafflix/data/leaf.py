"""LEAF JSON: ``users``, ``num_samples`` and ``user_data[user] = {"x": [...], "y": [...]}``.

A source is one ``.json`` file, a folder of ``all_data_*.json``, or a folder with the folders
``train`` and ``test``. FEMNIST has 784 shares of white for an image and its class; Shakespeare
has a text of 80 characters and the one that follows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scafflix.core.errors import ScafflixError
from scafflix.data.arrays import by
from scafflix.data.federation import Features, Labels
from scafflix.data.images import CLASSES, PIXELS, from_shares, not_a_class
from scafflix.data.parts import Budget, Clients, Parts
from scafflix.data.recognition import files_in
from scafflix.data.text import LENGTH, continued


def read_leaf(path: Path) -> Parts:
    """The clients of a LEAF file or folder."""
    budget = Budget(path)
    if path.is_file():
        return Parts(read_files([path], budget))
    if flat := files_in(path):
        return Parts(read_files(flat, budget))
    train, test = (read_files(files_in(path / part), budget) for part in ("train", "test"))
    return Parts(train, test)


def read_files(paths: list[Path], budget: Budget) -> Clients:
    """The clients of several files, each in one of them."""
    clients: dict[str, tuple[Features, Labels]] = {}
    for path in paths:
        for client, examples in read_file(path).items():
            if client in clients:
                raise ScafflixError(f"{path}, client {client!r}: is in another file too.")
            budget.spend(examples[0].nbytes)
            clients[client] = examples
    return clients


def read_file(path: Path) -> dict[str, tuple[NDArray[np.uint8], NDArray[np.int8]]]:
    """The clients of one file, checked against what it says of them."""
    content = parse(path)
    users, counts = entry(path, content, "users", list), entry(path, content, "num_samples", list)
    data = entry(path, content, "user_data", dict)
    if len(users) != len(counts):
        raise ScafflixError(
            f"{path}: {len(users)} users but {len(counts)} num_samples; give one for each."
        )
    clients = {}
    for user, count in zip(users, counts, strict=True):
        where = f"{path}, client {user!r}"
        if not isinstance(user, str) or user in clients:
            raise ScafflixError(f"{where}: the id is not text, or occurs twice among the users.")
        if user not in data:
            raise ScafflixError(f"{where}: among the users, but not in user_data.")
        clients[user] = read_client(data[user], count, where)
    strangers = [user for user in data if user not in clients]
    if strangers:
        raise ScafflixError(f"{path}, client {strangers[0]!r}: in user_data, but not among users.")
    return clients


def parse(path: Path) -> dict[str, Any]:
    """The JSON of a file, the pixels of each client packed as soon as they are read."""

    def pack(found: dict[str, Any]) -> dict[str, Any]:
        x = found.get("x")
        if isinstance(x, list) and x and all(isinstance(image, list) for image in x):
            try:
                found["x"] = np.array(x, np.float64)
            except (TypeError, ValueError, OverflowError):
                return found  # `read_client` says what is wrong, and for whom
        return found

    try:
        with path.open(encoding="utf-8") as file:
            content = json.load(file, object_hook=pack)
    except OSError as error:
        raise ScafflixError(f"{path}: cannot be read ({error.strerror}).") from error
    except json.JSONDecodeError as error:
        raise ScafflixError(
            f"{path}, line {error.lineno}: not valid JSON ({error.msg})."
        ) from error
    except (ValueError, RecursionError) as error:
        raise ScafflixError(f"{path}: not valid JSON ({type(error).__name__}).") from error
    if not isinstance(content, dict):
        raise ScafflixError(
            f"{path}: not a JSON object; it must have users, num_samples and user_data."
        )
    return content


def entry(path: Path, content: dict[str, Any], key: str, kind: type[Any]) -> Any:
    """One of the entries that a LEAF file must have."""
    if not isinstance(content.get(key), kind):
        raise ScafflixError(
            f"{path}: {key!r} is missing or not a {kind.__name__}; "
            "a LEAF file has users, num_samples and user_data."
        )
    return content[key]


def read_client(data: Any, count: Any, where: str) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """The examples of one client, as many as the file says."""
    x, y = (data.get(key) if isinstance(data, dict) else None for key in ("x", "y"))
    if not isinstance(x, list | np.ndarray) or not isinstance(y, list):
        raise ScafflixError(f"{where}: 'x' or 'y' is missing or not a list.")
    if len(x) != len(y):
        raise ScafflixError(f"{where}: {len(x)} examples in x but {len(y)} labels in y.")
    if len(x) != count:
        raise ScafflixError(f"{where}: num_samples is {count!r}, but there are {len(x)} examples.")
    if isinstance(x, list) and x and all(isinstance(text, str) for text in x):
        return read_texts(x, y, where)
    return read_images(x, y, where)


def read_images(
    x: list[Any] | NDArray[np.float64], y: list[Any], where: str
) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Images of 784 shares of white and their classes."""
    if isinstance(x, list):
        for row, image in enumerate(x):
            if not isinstance(image, list) or len(image) != PIXELS:
                size = len(image) if isinstance(image, list) else "no"
                raise ScafflixError(
                    f"{where}: image {row} (from 0) has {size} pixels; give {PIXELS}."
                )
        if x:
            raise ScafflixError(
                f"{where}: 'x' holds something that is not a number; give shares of white."
            )
    elif x.shape[1:] != (PIXELS,):
        raise ScafflixError(f"{where}: images of {by(x.shape[1:])} pixels; give {PIXELS}.")
    images = from_shares(np.asarray(x, np.float64).reshape(len(y), PIXELS), where)
    for row, label in enumerate(y):
        if type(label) is not int or not 0 <= label < CLASSES:
            raise not_a_class(row, label, where)
    return images, np.array(y, np.int8)


def read_texts(
    x: list[str], y: list[Any], where: str
) -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """Texts of 80 characters and what follows them."""
    for row, (text, following) in enumerate(zip(x, y, strict=True)):
        if len(text) != LENGTH:
            raise ScafflixError(
                f"{where}: text {row} (from 0) has {len(text)} characters; give {LENGTH}."
            )
        if not isinstance(following, str) or len(following) != 1:
            raise ScafflixError(
                f"{where}: label {row} (from 0) is {following!r}; give the character that follows."
            )
    return continued(x, y)
