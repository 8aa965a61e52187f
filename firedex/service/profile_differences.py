"""What loading a phase's profile would change. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from firedex.wire.incident import ProfileRule

__all__ = ["ProfileDifference", "difference_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDifference:
    """Rules by what becomes of them; ``reordered``: another one may decide, though none changes."""

    new: tuple[ProfileRule, ...]
    changed: tuple[tuple[ProfileRule, ProfileRule], ...]
    gone: tuple[ProfileRule, ...]
    same: int
    reordered: bool

    def __str__(self) -> str:
        counts = [
            (len(self.new), "new"),
            (len(self.changed), "changed"),
            (len(self.gone), "gone"),
            (self.same, "as before"),
        ]
        said = ", ".join(f"{count} {what}" for count, what in counts if count) or "no rules"
        return said + (", in another order" if self.reordered else "")


def difference_of(before: Sequence[ProfileRule], after: Sequence[ProfileRule]) -> ProfileDifference:
    """Rules for the same filter and role are the same rule, the first of each."""
    old, new = _by_name(before), _by_name(after)
    kept = [name for name in new if name in old]
    changed = tuple((old[name], new[name]) for name in kept if old[name] != new[name])
    return ProfileDifference(
        new=tuple(rule for name, rule in new.items() if name not in old),
        changed=changed,
        gone=tuple(rule for name, rule in old.items() if name not in new),
        same=len(kept) - len(changed),
        reordered=kept != [name for name in old if name in new],
    )


def _by_name(rules: Sequence[ProfileRule]) -> dict[tuple[str, str], ProfileRule]:
    named: dict[tuple[str, str], ProfileRule] = {}
    for rule in rules:
        named.setdefault((rule.filter, rule.role), rule)
    return named
