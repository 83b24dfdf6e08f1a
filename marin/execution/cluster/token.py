"""Whether a cluster lets this machine in: Ray's token authentication, asked before Ray itself tries for long.

Ray 2.60 sends a token only in the mode `token` (`RAY_AUTH_MODE`), and takes it from `RAY_AUTH_TOKEN`, else from the
file that `RAY_AUTH_TOKEN_PATH` names, else from `~/.ray/auth_token`. With a wrong one it tries for 20 s and then says
that it could not connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"
TLS = "RAY_USE_TLS"
ASK_SECONDS = 10.0
IS_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"
"""A question of Ray's own protocol; an empty message asks it."""


def token_of(environment: Mapping[str, str], home: Path) -> tuple[str, str]:
    """(where this machine's token comes from, the token); the token is empty where none can be read."""
    if environment.get(TOKEN):
        return TOKEN, environment[TOKEN].strip()
    path = Path(environment[TOKEN_PATH]) if environment.get(TOKEN_PATH) else home / ".ray" / "auth_token"
    try:
        return str(path), path.read_text().strip()
    except OSError:
        return str(path), ""


def refused(host: str, port: int, environment: Mapping[str, str], home: Path) -> str | None:
    """Why what listens there does not let this machine in, and the way out; None when it does, or cannot be asked."""
    if environment.get(TLS, "").lower() in ("1", "true"):
        return None
    sends = environment.get(MODE, "").lower() == "token"
    source, token = token_of(environment, home)
    answer = _ask(host, port, token if sends else "")
    if answer == "OK":
        return None
    if answer != "UNAUTHENTICATED":
        return (
            f"something listens at {host}:{port}, and it is no head of a Ray cluster ({answer}): the head's own port "
            "is 6379 unless it was started with another; 8265 is the dashboard's, 10001 that of Ray's client"
        )
    cluster = f"the cluster at {host}:{port} lets in only who has its token"
    if not sends and token:
        return f"{cluster}, and this process sends none: set {MODE}=token, and the one in {source} is sent"
    if not token:
        return (
            f"{cluster}, and this machine has none: set {MODE}=token, and put the cluster's token "
            f"into {TOKEN} or ~/.ray/auth_token"
        )
    return f"{cluster}, and the one in {source} is another: put the cluster's token there, or into {TOKEN}"


def _ask(host: str, port: int, token: str) -> str:
    """gRPC's name for the answer to whether the head lives."""
    import grpc

    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with grpc.insecure_channel(target) as channel:
        ask = channel.unary_unary(IS_ALIVE)
        metadata = [("authorization", f"Bearer {token}")] if token else []
        try:
            ask(b"", timeout=ASK_SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"
