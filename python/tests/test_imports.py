"""What importing the package loads: each start of a program pays for it, so only what a call needs."""

import subprocess
import sys
from pathlib import Path

import glasscache
import pytest

PACKAGE_PARENT = str(Path(glasscache.__file__).parents[1])

OWN_MODULES_OF_THE_PACKAGE = {"glasscache", "glasscache._native"}

OWN_MODULES_OF_A_CLIENT = OWN_MODULES_OF_THE_PACKAGE | {
    "glasscache._at_exit",
    "glasscache._caching",
    "glasscache._client_settings",
    "glasscache._get_or_set",
    "glasscache._greenlets",
    "glasscache._local_methods",
    "glasscache._near",
    "glasscache._object_bounds",
    "glasscache._settings",
    "glasscache._suggestions",
    "glasscache._typed",
    "glasscache._types",
    "glasscache.client",
    "glasscache.errors",
    "glasscache.values",
}

STANDARD_MODULES_OF_A_CLIENT = {
    *(
        "__future__",
        "_collections",
        "_collections_abc",
        "_functools",
        "_operator",
        "_sre",
        "_stat",
        "_typing",
    ),
    *(
        "_weakrefset",
        "atexit",
        "collections",
        "contextlib",
        "copyreg",
        "enum",
        "functools",
        "genericpath",
    ),
    *(
        "importlib",
        "itertools",
        "keyword",
        "operator",
        "os",
        "posixpath",
        "re",
        "reprlib",
        "stat",
        "types",
    ),
    *("typing", "warnings", "weakref"),
}


def loaded_modules(statement: str) -> set[str]:
    """Return the modules that a statement loads in an interpreter that has loaded nothing yet."""
    code = f"import sys; before = set(sys.modules); sys.path.insert(0, {PACKAGE_PARENT!r})\n{statement}\n"
    code += "print(*(set(sys.modules) - before))"
    command = [sys.executable, "-I", "-S", "-c", code]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(completed.stdout.split())


def own_and_standard(modules: set[str]) -> tuple[set[str], set[str]]:
    own = {module for module in modules if module.partition(".")[0] == "glasscache"}
    return own, {module.partition(".")[0] for module in modules - own}


def test_importing_the_package_loads_the_native_module_and_nothing_else() -> None:
    own, standard = own_and_standard(loaded_modules("import glasscache"))
    assert own == OWN_MODULES_OF_THE_PACKAGE
    assert standard <= {"__future__"}


@pytest.mark.parametrize(
    "statement",
    [
        "from glasscache import Client",
        "import glasscache; glasscache.Client",
        "from glasscache import Client; Client('127.0.0.1:1', on_error='miss', timeout=5).get('key')",
    ],
)
def test_a_client_and_its_first_call_load_what_is_listed_here(statement: str) -> None:
    own, standard = own_and_standard(loaded_modules(statement))
    assert own <= OWN_MODULES_OF_A_CLIENT
    assert standard <= STANDARD_MODULES_OF_A_CLIENT


def test_importing_everything_brings_nothing_that_is_slow_to_import() -> None:
    slow_modules = {
        "asyncio",
        "subprocess",
        "json",
        "datetime",
        "inspect",
        "dataclasses",
        "msgspec",
        "numpy",
        "logging",
        "secrets",
        "textwrap",
        "_ast",
    }
    names = "Client, Item, Codec, RawJSON, TLS, GlasscacheError"
    assert slow_modules & loaded_modules(f"from glasscache import {names}") == set()


def test_names_and_submodules_are_attributes_without_an_import_of_their_own() -> None:
    code = (
        "import glasscache as g; assert g.Client is g.client.Client and g.errors.BadKey is g.BadKey; "
        "assert g.values.Codec is g.Codec and g.tls.TLS is g.TLS and g.leases; "
        "assert set(g.__all__) <= set(dir(g)); assert not hasattr(g, 'Clientt')"
    )
    loaded_modules(code)
