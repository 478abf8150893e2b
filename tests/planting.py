"""Plant a mistake into a function by rewriting its source."""

import inspect
import sys
import textwrap


def plant(patch, holder, name, right, wrong):
    """Replace `right` by `wrong` in the source of `holder.name`; both must be there to tell apart.

    Args:
        patch: pytest's monkeypatch, which takes the mistake out again.
        holder: the module or class that has the function.
        name: of the function.
        right: a piece of its source, which it has once.
        wrong: what stands there instead.
    """
    function = getattr(holder, name)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, f"`{right}` is {source.count(right)} times in `{name}`"
    scope = dict(vars(sys.modules[function.__module__]))
    made: dict = {}
    exec(source.replace(right, wrong), scope, made)  # noqa: S102 - our own source
    patch.setattr(holder, name, made[name])
