"""Build hook: a wheel that carries the compiled views, when CHIARO_COMPILE=1 asks for one.

Without the variable the wheel is pure Python and compiles the views at first use. With it, the
library is built for any processor of its platform and used where there is no C compiler; on x86-64
a second one for x86-64-v3 (AVX2 and FMA) goes with it.
"""

import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/chiaroscuro/views/native.c")
FLAGS = (
    *("-O3", "-std=gnu11", "-fPIC", "-shared"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
)


class CompiledViews(BuildHookInterface):
    """Compile `native.c` into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("CHIARO_COMPILE") != "1":
            return
        source = Path(self.root) / SOURCE
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:20]
        self.scratch = tempfile.mkdtemp()
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        variants = {"": ()} | ({"-v3": ("-march=haswell",)} if platform.endswith("x86_64") else {})
        compiler = os.environ.get("CC") or "cc"
        for ending, more in variants.items():
            library = Path(self.scratch) / f"native-{digest}{ending}.so"
            subprocess.run([compiler, *FLAGS, *more, "-o", library, source, "-lm"], check=True)
            build_data["force_include"][str(library)] = f"chiaroscuro/views/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"  # it needs no Python of its own

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "scratch"):
            shutil.rmtree(self.scratch)
