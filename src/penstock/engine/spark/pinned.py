"""The settings under which Spark SQL means one thing: pinned in every session in which expressions of flows are evaluated.

Results are a function of the log, not of how a session happens to be set. Values are Spark's defaults, except where it is said.
"""

from collections.abc import Mapping
from typing import Any

from penstock.errors import EngineError

_ON = (
    "ansi.enabled",  # overflow, division by zero and casts that do not fit are errors, not null or another number
    "decimalOperations.allowPrecisionLoss",
    "icu.caseMappings.enabled",
    "json.enableExactStringParsing",
    "json.enablePartialResults",
    "jsonGenerator.ignoreNullFields",
    "legacy.followThreeValuedLogicInArrayExists",
    "legacy.literal.pickMinimumPrecision",
    "legacy.sizeOfNull",
    "readSideCharPadding",
)
_OFF = (
    "ansi.doubleQuotedIdentifiers",  # "a" is a string
    "ansi.enforceReservedKeywords",
    "ansi.relationPrecedence",
    "caseSensitive",
    "charAsVarchar",
    "function.concatBinaryAsString",
    "function.eltOutputAsString",
    "legacy.allowHashOnMapType",
    "legacy.allowNegativeScaleOfDecimal",
    "legacy.allowNullComparisonResultInArraySort",
    "legacy.allowZeroIndexInFormatString",
    "legacy.bangEqualsNot",
    "legacy.castComplexTypesToString.enabled",
    "legacy.charVarcharAsString",
    "legacy.codingErrorAction",
    "legacy.collationAwareHashFunctions",
    "legacy.consecutiveStringLiterals.enabled",
    "legacy.createEmptyCollectionUsingStringType",
    "legacy.decimal.retainFractionDigitsOnTruncate",
    "legacy.disableMapKeyNormalization",
    "legacy.doLooseUpcast",
    "legacy.duplicateBetweenInput",
    "legacy.exponentLiteralAsDecimal.enabled",
    "legacy.fromDayTimeString.enabled",
    "legacy.interval.enabled",
    "legacy.javaCharsets",
    "legacy.json.allowEmptyString.enabled",
    "legacy.lpadRpadAlwaysReturnString",
    "legacy.negativeIndexInArrayInsert",
    "legacy.noCharPaddingInPredicate",
    "legacy.truncateForEmptyRegexSplit",
    "legacy.typeCoercion.datetimeToString.enabled",
    "parser.escapedStringLiterals",
    "parser.quotedRegexColumnNames",
    "preserveCharVarcharTypeInfo",
    "variable.substitute",  # not Spark's default: ${…} in a text would be what the environment says
    "variant.allowDuplicateKeys",
)
_OTHERS = {
    "columnNameOfCorruptRecord": "_corrupt_record",
    "legacy.timeParserPolicy": "CORRECTED",
    "mapKeyDedupPolicy": "EXCEPTION",
    "session.timeZone": "UTC",
    "storeAssignmentPolicy": "ANSI",
    "timestampType": "TIMESTAMP_LTZ",
}
PINNED: Mapping[str, str] = {
    f"spark.sql.{name}": value for name, value in (dict.fromkeys(_ON, "true") | dict.fromkeys(_OFF, "false") | _OTHERS).items()
}


def refuse_other_meaning(given: Mapping[str, str]) -> None:
    """EngineError if a setting that the user gives would change what expressions mean."""
    for name, value in given.items():
        pinned = PINNED.get(name)
        if pinned is not None and value.strip().lower() != pinned.lower():
            raise EngineError(
                f"cannot run flows with {name}={value}: it changes what expressions mean",
                f"results must be a function of the log, so it is {pinned} in every session in which flows run",
                hint="leave it out; say in the expression what you mean, e.g. try_cast, try_divide, try_add",
            )


def pin(session: Any) -> None:
    """Sets all of them; names that this version of Spark does not know are left out."""
    for name, value in PINNED.items():
        if session.conf.isModifiable(name):
            session.conf.set(name, value)
