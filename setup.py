"""Everything is declared in setup.cfg; this file lets tools that look for it find it."""

from setuptools import setup

setup()
