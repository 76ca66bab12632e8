"""Typed getters of header values: the value if its kind and range allow it, else an error that names both."""

from __future__ import annotations

from .errors import CorruptError, LocalError
from .kinds import FLOATS, INTEGERS, Kind, decode_value

_NUMBERS = frozenset({*INTEGERS, *FLOATS})


class TypedGetters:
    """``as_u16()`` and the other getters, for anything that has a kind and bytes.

    Each returns the value if it is of that kind, or a number of another kind that fits (a float as an integer only if
    it is whole). Raises LocalError, which names the header, its kind and the limit, for any other value and for null;
    CorruptError if the bytes cannot be what the kind declares.
    """

    __slots__ = ()

    def _parts(self) -> tuple[str, int, bytes | None]:
        """Return how error messages name it, its kind and its bytes."""
        raise NotImplementedError

    def as_raw(self) -> bytes:
        """Return the bytes of a raw value, or of a kind that this version does not know."""
        name, kind, data = self._parts()
        if data is None or (kind in set(Kind) and kind != Kind.RAW):
            raise _wrong_kind_error(name, kind, data, "raw bytes")
        return data

    def as_str(self) -> str:
        """Return the text of a string, or of a raw value that is UTF-8, as Kafka declares no kinds."""
        name, kind, data = self._parts()
        if data is None or kind not in (Kind.STRING, Kind.RAW):
            raise _wrong_kind_error(name, kind, data, "a string")
        try:
            return data.decode()
        except UnicodeDecodeError:
            if kind == Kind.STRING:
                raise CorruptError(f"{name} is a string whose bytes are not UTF-8") from None
            raise _wrong_kind_error(name, kind, data, "a string: its bytes are not UTF-8") from None

    def as_bool(self) -> bool:
        """Return a bool."""
        name, kind, data = self._parts()
        if kind != Kind.BOOL or data is None:
            raise _wrong_kind_error(name, kind, data, "a bool")
        return bool(decode_value(kind, data))

    def as_i8(self) -> int:
        """Return an integer from -128 to 127."""
        return self._get_integer(Kind.INT8)

    def as_i16(self) -> int:
        """Return a signed integer of 16 bits."""
        return self._get_integer(Kind.INT16)

    def as_i32(self) -> int:
        """Return a signed integer of 32 bits."""
        return self._get_integer(Kind.INT32)

    def as_i64(self) -> int:
        """Return a signed integer of 64 bits."""
        return self._get_integer(Kind.INT64)

    def as_i128(self) -> int:
        """Return a signed integer of 128 bits."""
        return self._get_integer(Kind.INT128)

    def as_u8(self) -> int:
        """Return an integer from 0 to 255."""
        return self._get_integer(Kind.UINT8)

    def as_u16(self) -> int:
        """Return an unsigned integer of 16 bits."""
        return self._get_integer(Kind.UINT16)

    def as_u32(self) -> int:
        """Return an unsigned integer of 32 bits."""
        return self._get_integer(Kind.UINT32)

    def as_u64(self) -> int:
        """Return an unsigned integer of 64 bits."""
        return self._get_integer(Kind.UINT64)

    def as_u128(self) -> int:
        """Return an unsigned integer of 128 bits."""
        return self._get_integer(Kind.UINT128)

    def as_f32(self) -> float:
        """Return a number rounded to float32; NaN and infinities are kept, finite numbers beyond its range refused."""
        return self._get_float(Kind.FLOAT32)

    def as_f64(self) -> float:
        """Return a number rounded to float64; NaN and infinities are kept."""
        return self._get_float(Kind.FLOAT64)

    def _get_number(self, wanted: Kind) -> int | float:
        name, kind, data = self._parts()
        if kind not in _NUMBERS or data is None:
            raise _wrong_kind_error(name, kind, data, f"a {wanted.word}")
        value = decode_value(kind, data)
        assert isinstance(value, int | float)
        return value

    def _get_integer(self, wanted: Kind) -> int:
        value, form = self._get_number(wanted), INTEGERS[wanted]
        whole = int(value) if isinstance(value, int) or value.is_integer() else None
        if whole is None or not form.low <= whole <= form.high:
            raise _misfit_error(self._parts(), value, f"{wanted.word} ({form.low} to {form.high})")
        return whole

    def _get_float(self, wanted: Kind) -> float:
        value, form = self._get_number(wanted), FLOATS[wanted]
        try:
            rounded: float = form.unpack(form.pack(float(value)))[0]
        except OverflowError:
            raise _misfit_error(
                self._parts(), value, f"{wanted.word} (finite numbers up to {_FLOAT_MAX[wanted]})"
            ) from None
        return rounded


_FLOAT_MAX = {Kind.FLOAT32: "3.4028235e+38", Kind.FLOAT64: "1.7976931348623157e+308"}


def _kind_word(kind: int) -> str:
    return Kind(kind).word if kind in set(Kind) else f"unknown kind {kind}"


def _wrong_kind_error(name: str, kind: int, data: bytes | None, wanted: str) -> LocalError:
    if data is None:
        return LocalError(f"{name} is null, not {wanted}")
    return LocalError(f"{name} is of kind {_kind_word(kind)}, not {wanted}")


def _misfit_error(parts: tuple[str, int, bytes | None], value: int | float, limit: str) -> LocalError:
    name, kind, _ = parts
    return LocalError(f"{name}, {_kind_word(kind)} {value}, does not fit {limit}; get it as another kind")
