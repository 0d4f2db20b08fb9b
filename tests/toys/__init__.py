"""Steps from outside the package: what CONTRIBUTING says is all that they touch."""
