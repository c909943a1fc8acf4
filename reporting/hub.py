"""Sending a model's folder to a hub, in one commit, through huggingface_hub.

The token is that of the environment (``HF_TOKEN``) or of ``hf auth login``, and so is the address
(``HF_ENDPOINT``): nothing of either is asked for, or kept, here. Needs the extra
``murmuration-rlhf[hub]``.
"""

from pathlib import Path

from murmuration.preference.data.errors import InputError, first_line, with_extra
from murmuration.preference.data.sources import is_hub_name


def check_repository(name: str) -> None:
    """InputError unless it is formed like ``owner/name``, or there is nothing to send it with."""
    if not is_hub_name(name) or "/" not in name:
        raise InputError(f"{name!r} is no repository: give NAMESPACE/NAME")
    with with_extra("hub", "--push needs huggingface_hub"):
        import huggingface_hub  # noqa: F401


def push(folder: Path, name: str, *, private: bool = False, revision: str = "") -> str:
    """Send a folder's files; where they are then.

    Args:
        folder: all of it is sent.
        name: of the repository, which is made if it is not there.
        private: whether one that is made is private.
        revision: a branch, which is made if it is not there; empty: the main one.

    Raises:
        InputError: there is no token, or the hub cannot be reached, or refuses.
    """
    check_repository(name)
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise InputError("no token for the hub: set HF_TOKEN, or run `hf auth login`")
    api = HfApi(library_name="murmuration")
    try:
        api.create_repo(name, private=private or None, exist_ok=True)
        if revision:
            api.create_branch(name, branch=revision, exist_ok=True)
        sent = api.upload_folder(
            repo_id=name,
            folder_path=folder,
            revision=revision or None,
            commit_message="Model by Murmuration",
        )
    except Exception as error:  # its versions have different HTTP clients, with errors of their own
        raise InputError(f"{name}: cannot be sent: {_why(error)}") from error
    return sent.commit_url


def _why(error: Exception) -> str:
    """The error in one line, with what to do if that is known."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    advice = {
        401: "the hub does not know the token (401): set HF_TOKEN, or run `hf auth login`",
        403: "the token may not write there (403): give one that may write, of this namespace",
    }
    if status in advice:
        return advice[status]
    names = {kind.__name__ for kind in type(error).__mro__}  # of whichever HTTP client it has
    if status is None and (isinstance(error, OSError) or "TransportError" in names):
        return f"the hub cannot be reached: {first_line(error)}"
    return first_line(error)
