"""The reporter: what a node has, told to the cluster. One runs on each node (a DaemonSet).

inventory.py and sysfs.py look (NVML, /sys), health.py judges, vendor.py reads what other device plugins gave out,
record.py writes it all down as objects of the API; these two are data in, data out. app.py runs them. Nothing here
decides where a pod goes: that is the extender's, which reads the Device object.
"""
