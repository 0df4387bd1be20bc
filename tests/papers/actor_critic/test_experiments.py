"""Equations, parity, laws and errors of the package: one file per module.

A test that checks a labelled equation says so: ``@pytest.mark.equation("eq-actor_critic-<noun>")``.
"""
