"""What becomes of personal data in a text, kind by kind."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

Treatment = Literal["mask", "flag", "keep"]

PERSONAL_KINDS = ("email", "ip", "phone", "key")
"""What is looked for, in the order of the columns that count it."""


@dataclass(frozen=True)
class PersonalData:
    """What is done with each kind of personal data.

    ``"mask"`` replaces every find by one text that stands for its kind. ``"flag"`` leaves it, counts it, and says so in
    the document's metadata (``"personal": {"phone": 2}``). ``"keep"`` does not look for it.

    E-mail and IP addresses are masked, as in the published recipes. So are keys: their marks leave hardly a doubt, they
    teach nothing, and a model that repeats one does harm. Telephone numbers are flagged: what looks like one may be a
    part number or a line of a table, where another number would be wrong, and most are printed for everybody to call.

    Attributes:
        email: e-mail addresses.
        ip: public IP addresses, of version 4 and 6.
        phone: telephone numbers, international ones with a plus sign or North American ones.
        key: access keys of services, web tokens and private keys.
    """

    email: Treatment = "mask"
    ip: Treatment = "mask"
    phone: Treatment = "flag"
    key: Treatment = "mask"

    def __post_init__(self) -> None:
        for one in fields(self):
            if getattr(self, one.name) not in get_args(Treatment):
                raise ValueError(
                    f"PersonalData.{one.name} is {getattr(self, one.name)!r}; choose one of "
                    f"{', '.join(get_args(Treatment))}"
                )

    def of(self, kind: str) -> Treatment:
        """What is done with a kind."""
        treatment: Treatment = getattr(self, kind)
        return treatment
