"""Files of constraints in YAML: a composed document, whose nodes know their lines."""

from __future__ import annotations

from typing import Any

from jaxseq.constraints._file_table import Located, Table, shown


def parse_yaml(text: str, name: str) -> Table:
    """The tables of a YAML text, which may hold data alone: nothing is executed.

    Args:
        text: the text. name: the file, for messages.

    Raises:
        ValueError: for what is not YAML or no mapping, with the file and the line.

    Example:
        >>> table = parse_yaml("penalty: 2\\nconstraint:\\n- kind: order\\n", "rules.yaml")
        >>> table.get("penalty"), table.get("constraint")[0].items
        (2, {'kind': Located(value='order', line=3)})
    """
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return Table(name, 1)
        if not isinstance(node, yaml.MappingNode):
            line = node.start_mark.line + 1
            raise ValueError(f"{name}:{line}: expected keys and values, got {shown(node.value)}")
        return _table(loader, node, name)
    except yaml.YAMLError as error:
        line, problem = _line(error, text), _problem(error)
        raise ValueError(f"{name}:{line}: expected YAML, got a mistake: {problem}") from None
    except RecursionError:
        raise ValueError(f"{name}:1: expected YAML, got lists too deep in each other") from None


def _table(loader: Any, node: Any, name: str) -> Table:
    """The mapping of a node; a list of mappings in it becomes a list of tables."""
    import yaml

    table = Table(name, node.start_mark.line + 1)
    for key_node, value_node in node.value:
        key, line = key_node.value, key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise ValueError(f"{name}:{line}: expected the name of a key, got a list or mapping")
        if key in table:
            raise ValueError(
                f"{name}:{line}: {key}: expected once, got it again after line {table.line_of(key)}"
            )
        table.items[key] = Located(_value(loader, value_node, name), line)
    return table


def _value(loader: Any, node: Any, name: str) -> Any:
    import yaml

    mappings = isinstance(node, yaml.SequenceNode) and [
        isinstance(item, yaml.MappingNode) for item in node.value
    ]
    if mappings and all(mappings):
        return [_table(loader, item, name) for item in node.value]
    try:
        return loader.construct_object(node, deep=True)
    except (ValueError, TypeError, LookupError, AttributeError):  # of a date or number that is none
        line = node.start_mark.line + 1
        raise ValueError(
            f"{name}:{line}: expected a value that YAML can read, got {shown(node.value)}"
        ) from None


def _line(error: Any, text: str) -> int:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        return mark.line + 1
    return text.count("\n", 0, getattr(error, "position", 0)) + 1


def _problem(error: Any) -> str:
    return getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
