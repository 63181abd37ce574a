"""How does a meter live in other packages' training loops? Each module needs the package that it is named after.

Callbacks for trainers of other libraries. They add no measurement of their own to `measure.meter`.
"""
