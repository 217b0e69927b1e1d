"""XML that anybody may have written: no document types, so no entities; no depth without end."""

from __future__ import annotations

from collections.abc import Callable
from xml.parsers import expat

MAX_DEPTH = 64  # of elements in each other; ELAN's files have six


def read_xml(data: bytes, start: Callable[[str, dict[str, str]], None], end: Callable[[str, str], None]) -> None:
    """Read a document element by element."""
    depth = 0
    text: list[str] = []

    def start_element(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError("its elements are nested too deep")
        text.clear()
        start(name, attributes)

    def end_element(name: str) -> None:
        nonlocal depth
        depth -= 1
        end(name, "".join(text))
        text.clear()

    def refuse(*_: object) -> None:
        raise ValueError("has a document type declaration, which annotation tools never write; it is not read")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start_element
    parser.EndElementHandler = end_element
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ValueError(f"not XML ({error})") from error
