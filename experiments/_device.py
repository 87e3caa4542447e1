"""The device that JAX computes on."""

from __future__ import annotations

DEVICES = ("cpu", "gpu", "tpu")


def use_device(name: str | None) -> dict[str, object]:
    """Make a kind of device JAX's default in this process, and say what it is.

    Args:
        name: one of `DEVICES`; None leaves JAX its choice.

    Returns:
        Platform, kind and number of the devices, for the provenance.

    Raises:
        ValueError: if there is no such device.

    Example:
        >>> use_device("cpu")["platform"]
        'cpu'
    """
    import jax  # as late as this: listing papers needs none of it

    try:
        devices = jax.devices(name)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]  # the others list all backends that were tried
        raise ValueError(
            f"--device: expected a device that is here, got {name}: {reason}"
        ) from None
    if name is not None:
        jax.config.update("jax_default_device", devices[0])
    first = devices[0]
    return {"platform": first.platform, "kind": first.device_kind, "count": len(devices)}
