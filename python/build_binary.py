"""Build hook: puts the program into the wheel, as a script next to `python`.

FLYBALL_BINARY names it, the static one of `dist/build --static`. Without the variable, and from an sdist, the wheel has no
program and works on every platform; the package then uses the `flyball` of PATH.
"""

from __future__ import annotations

import os
import struct
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# e_machine of an ELF header (elf.h).
ARCHITECTURES = {62: "x86_64", 183: "aarch64"}
# p_type of the program header that names the dynamic linker.
PT_INTERP = 3


def platform_tag(binary: str) -> str:
    """Tags of the platforms on which a program runs. A static one needs neither glibc nor musl, a dynamic one the libraries of here."""
    with open(binary, "rb") as file:
        header = file.read(1 << 16)
    if header[:4] != b"\x7fELF":
        raise ValueError(f"{binary} is not an ELF file")
    arch = ARCHITECTURES[struct.unpack_from("<H", header, 18)[0]]
    (start,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    if any(struct.unpack_from("<I", header, start + size * entry)[0] == PT_INTERP for entry in range(count)):
        return f"linux_{arch}"
    return f"manylinux_2_17_{arch}.manylinux2014_{arch}.musllinux_1_1_{arch}"


class BinaryHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        binary = os.environ.get("FLYBALL_BINARY")
        if not binary or version == "editable":
            return
        build_data["shared_scripts"][binary] = "flyball"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(binary)}"
