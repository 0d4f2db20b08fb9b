"""--conf KEY=VALUE, as several commands take it."""

import click


def spark_settings(conf: tuple[str, ...]) -> dict[str, str]:
    """The settings that were given; a wrong one is wrong usage."""
    pairs = [item.partition("=") for item in conf]
    for item, (key, equals, _) in zip(conf, pairs, strict=True):
        if not equals or not key.strip():
            raise click.UsageError(f"--conf {item!r} is not KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in pairs}
