"""Functions that do something at a call of one's choice."""


def at_call(function, number, then):
    """The function, which at its n-th call does something else first."""
    calls = []

    def counted(*arguments, **options):
        calls.append(number)
        if len(calls) == number:
            then()
        return function(*arguments, **options)

    return counted
