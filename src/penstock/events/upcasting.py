"""Upcasters: events of old forms, made into those of today when they are read. What is stored stays as it was."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import BadInput

Data = dict[str, Any]  # the fields of an event, as JSON has them


class Form(NamedTuple):
    """A form of an event: its name, and a number that grows when its fields change."""

    name: str
    number: int = 1

    def __str__(self) -> str:
        return f"{self.name} {self.number}"


@dataclass(frozen=True)
class Upcaster:
    """Makes the fields of an event of one form into those of the next: the same name with the next number, or `to`.

    >>> Upcaster("ItemAdded", 1, lambda fields: fields | {"currency": "EUR"}).target
    Form(name='ItemAdded', number=2)
    """

    name: str
    number: int
    change: Callable[[Data], Data]
    to: Form | None = None

    @property
    def target(self) -> Form:
        return Form(*self.to) if self.to else Form(self.name, self.number + 1)


class Upcasting:
    """Upcasters, one behind the other, until none is left that takes the form."""

    def __init__(self, upcasters: Iterable[Upcaster], known: Collection[Form]) -> None:
        """known: the forms of the program's classes, which every chain must end at."""
        self._by_form: dict[Form, Upcaster] = {}
        for upcaster in upcasters:
            form = Form(upcaster.name, upcaster.number)
            if form in self._by_form:
                raise BadInput(f"there are two upcasters for events {form}", hint="make one of them")
            self._by_form[form] = upcaster
        for form in self._by_form:
            self._check(form, known)

    def __bool__(self) -> bool:
        return bool(self._by_form)

    def current(self, form: Form, data: Data) -> tuple[Form, Data]:
        """Form and fields as the program has them today."""
        while form in self._by_form:
            upcaster = self._by_form[form]
            form, data = upcaster.target, upcaster.change(data)
        return form, data

    def names_before(self, forms: Collection[Form]) -> set[str]:
        """The names of these forms, and of all that become one of them."""
        return {form.name for form in [*forms, *self._by_form] if self.current_form(form) in forms}

    def current_form(self, form: Form) -> Form:
        """What an event of this form is read as."""
        while form in self._by_form:
            form = self._by_form[form].target
        return form

    def _check(self, form: Form, known: Collection[Form]) -> None:
        seen = [form]
        while seen[-1] in self._by_form:
            seen.append(self._by_form[seen[-1]].target)
            if seen[-1] in seen[:-1]:
                raise BadInput(f"the upcasters of event {form} go round in a circle", " → ".join(map(str, seen)))
        if seen[-1] not in known:
            raise BadInput(f"the upcasters of event {form} end at {seen[-1]}, which no class is", " → ".join(map(str, seen)))
