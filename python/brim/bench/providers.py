"""What may take part in a case, and finding out which of it is installed."""

import importlib.metadata

from .timing import reason

PACKAGES = ("torch", "triton", "liger_kernel", "quack-kernels", "nvidia-cutlass-dsl", "transformers")


class Provider:
    """One implementation of an op. Its constructor imports what it needs, and raises where that is missing.

    Subclasses add the methods that the op's module calls.
    """

    name = ""
    in_place = False  # works on its inputs' memory
    gpu_only = False
    on_request = ""  # what it takes to include it, when it does not run by itself
    limit_ulp = 4  # of the largest term of a sum; libraries that round three times come within 2 where all goes well

    @property
    def title(self):
        return f"{self.name}, in place" if self.in_place else self.name


def load(classes, device, wanted=None, requested=()):
    """(providers, {title: why it is left out}) of an op's classes.

    wanted: names to take (None: all); requested: names of those that run on request only.
    """
    providers, left_out = [], {}
    for cls in classes:
        title = f"{cls.name}, in place" if cls.in_place else cls.name
        if wanted is not None and cls.name not in wanted:
            continue
        if cls.on_request and cls.name not in requested and (wanted is None or cls.name not in wanted):
            left_out[title] = cls.on_request
        elif cls.gpu_only and device.type == "cpu":
            left_out[title] = "runs on a GPU only"
        else:
            try:
                providers.append(cls())
            except Exception as error:  # a library may fail to import in any way
                left_out[title] = reason(error)
    return providers, left_out


def versions():
    """{package: version} of what is installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
