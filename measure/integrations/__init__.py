"""How does a meter live in other packages' training loops? Each module needs the package that it is named after."""
