"""A secure run quotes no private key, secret or token but in the files that are for them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed; pip install 'scafflix[flower]'")

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from scafflix import ScafflixError
from scafflix.federate.configuration import DeployConfig, checked
from scafflix.federate.local import LocalFederation
from scafflix.federate.partition import write_nodes
from scafflix.federate.processes import free_port, wait_for_port

LEAST = 24  # characters of a line of a key that are no accident


def spellings(path: Path) -> set[bytes]:
    """What a file must not be quoted with: its lines, and the private number of a key."""
    content = path.read_bytes()
    found = {line for line in content.split() if len(line) >= LEAST}
    if b"PRIVATE KEY" not in content:
        return found
    load = load_ssh_private_key if b"OPENSSH" in content else load_pem_private_key
    key = load(content, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    number = key.private_numbers().private_value
    raw = number.to_bytes((key.key_size + 7) // 8, "big")
    plain = {raw, raw.hex().encode(), base64.b64encode(raw), str(number).encode()}
    return found | plain


def leaks(folder: Path, secrets: set[Path]) -> list[str]:
    """Files that quote a secret, among all but those that hold one."""
    forbidden = {text: path for path in secrets for text in spellings(path)}
    assert forbidden
    return [
        f"{path.relative_to(folder)} quotes {source.name}"
        for path in folder.rglob("*")
        if path.is_file() and path not in secrets
        for text, source in forbidden.items()
        if text in path.read_bytes()
    ]


def test_no_file_of_a_secure_run_quotes_a_secret(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One that finishes, with a page that others could reach, and an error at the end."""
    keys = {"data": "synthetic:rows=20,features=5", "clients": 3, "alpha": 0.5}
    config = checked(DeployConfig(**keys, rounds=2, patience=60.0))
    made, nodes = write_nodes(config, 3, tmp_path / "nodes")
    federation = LocalFederation(tmp_path, made, nodes, secure=True, page=f"0.0.0.0:{free_port()}")
    page = federation.link.page
    assert page is not None
    with page, federation.processes:
        federation.start()
        federation.link.wait()
        record = federation.run()
        assert page.shown()["round"] == 2
        federation.processes.kill("superlink")
        with pytest.raises(ScafflixError) as error:
            wait_for_port(federation.link.port, federation.processes, seconds=0.2)
    assert record.summary["rounds"] == 2
    private = {tmp_path / "keys" / name for name in ("server.key", "authority.key")}
    private |= set(federation.keys)
    secrets = private | {page.token_file, tmp_path / "flower" / "secret"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in secrets)
    assert leaks(tmp_path, secrets) == []
    said = "".join(capfd.readouterr()) + str(error.value) + repr(page.shown()) + page.url
    for path in secrets:
        assert not any(text in said.encode() for text in spellings(path)), path.name


def test_a_quoted_secret_would_be_found(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef")
    (tmp_path / "job.log").write_text("asked with Bearer 0123456789abcdef0123456789abcdef\n")
    assert leaks(tmp_path, {secret}) == ["job.log quotes secret"]
