#!/bin/sh
# Says what to install where there is no Java that Spark can run on.
set -eu
if [ -n "${JAVA_HOME:-}" ]; then java="$JAVA_HOME/bin/java"; else java=java; fi
version=$("$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9]*\).*/\2/p' | head -n 1) || version=
if [ -z "$version" ] || [ "$version" -lt 17 ]; then
    if [ -n "$version" ]; then found="$java is Java $version"; else found="none was found"; fi
    echo "error: Spark needs Java 17 or later, and $found" >&2
    echo "  hint: Debian/Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17; or set JAVA_HOME" >&2
    exit 1
fi
